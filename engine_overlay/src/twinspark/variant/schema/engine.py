"""Keys about speculation, CUDA graphs, kernels and the engine's own environment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from twinspark.variant.keys import AbsolutePath, Derived, EngineEnv, Flag, Integer, Key, Switch


class Speculation(BaseModel):
    """Keys about the draft head and the CUDA graphs that its width decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    SPEC_METHOD: Annotated[
        Literal["dspark", "none"],
        Field(description="Speculative decoding by the checkpoint's own draft head, or none."),
        Key(
            Derived("speculative-config: method"),
            source="the 0731 checkpoint's mtp.* tensors are DSpark's: there is no plain MTP",
            scope="deepseek",
        ),
    ] = "dspark"
    SPEC_TOKENS: Annotated[
        Integer,
        Field(description="Draft tokens a step.", ge=0, le=15),
        Key(
            Derived("speculative-config: num_speculative_tokens"),
            source="5 (Mia, tony, ecohash, nepenth, NemoClaw, CO); 2 (Reed) is refused by "
            "config/speculative.py:1035-1058@0.27.1; "
            "7 (the model card, -21% at 8 requests by CO)",
            unit="tokens",
            scope="deepseek",
        ),
    ] = 5
    DRAFT_SAMPLE_METHOD: Annotated[
        Literal["greedy", "probabilistic"],
        Field(description="How the draft head picks its tokens."),
        Key(
            Derived("speculative-config: draft_sample_method"),
            source="probabilistic (most); greedy (hazyumps, stock default)",
            scope="deepseek",
        ),
    ] = "probabilistic"
    ENFORCE_EAGER: Annotated[
        Switch,
        Field(description="No CUDA graphs at all."),
        Key(
            Flag("enforce-eager"),
            source="off on a GPU; on in the lab (the CPU engine starts in a third of the time)",
        ),
    ] = False
    CUDAGRAPH_MODE: Annotated[
        Literal["NONE", "PIECEWISE", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"],
        Field(description="Which steps are replayed from CUDA graphs."),
        Key(
            Derived("compilation-config: cudagraph_mode"),
            source="FULL_AND_PIECEWISE (first seed, stock default); PIECEWISE avoids its finding "
            "#13 without the overlay",
            scope="deepseek",
        ),
    ] = "FULL_AND_PIECEWISE"
    CUDAGRAPH_MAX_CAPTURE_SIZE: Annotated[
        Integer | None,
        Field(
            description="Largest captured step; requests x (draft tokens + 1) when unset.",
            ge=1,
            le=512,
        ),
        Key(
            Flag("max-cudagraph-capture-size"),
            source="requests x (k+1): 36 (Mia, NemoClaw), 48 (NVIDIA), 72 (ecohash); twice that "
            "(Reed)",
            unit="tokens",
            scope="deepseek",
        ),
    ] = None


class Kernels(BaseModel):
    """Keys that choose kernels, and the toolkit that compiles them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    TWINSPARK_KERNELS: Annotated[
        Literal["triton", "deepgemm", "check"],
        Field(
            description="Kernels in place of DeepGEMM's: the overlay's, an installed SM120 "
            "DeepGEMM, or both compared."
        ),
        Key(
            EngineEnv("TWINSPARK_KERNELS"),
            source="the stock wheel's DeepGEMM has no sm120 kernel; deepgemm needs sgl-deep-gemm "
            "installed and is untested",
            scope="deepseek",
        ),
    ] = "triton"
    MOE_BACKEND: Annotated[
        Literal[
            "auto",
            "marlin",
            "triton",
            "triton_unfused",
            "flashinfer_cutlass",
            "humming",
            "deep_gemm",
            "emulation",
        ],
        Field(description="Kernels of the MXFP4 experts."),
        Key(
            Flag("moe-backend"),
            source="marlin (first seed; compute capability 7.5 and up); deep_gemm (nepenth, "
            "ecohash, with an SM120 build); "
            "flashinfer_b12x (Anemll, Mia, NemoClaw) is a fork's",
            scope="deepseek",
        ),
    ] = "marlin"
    LINEAR_BACKEND: Annotated[
        Literal["auto", "triton", "cutlass", "marlin", "humming", "deep_gemm"],
        Field(description="Kernels of the block-scaled FP8 linears."),
        Key(
            Flag("linear-backend"),
            source="triton: kernels/linear/__init__.py:371-383@0.27.1 would choose DeepGEMM, "
            "which dies on SM12x",
            scope="deepseek",
        ),
    ] = "triton"
    ENABLE_FLASHINFER_AUTOTUNE: Annotated[
        Switch,
        Field(description="Let FlashInfer time kernels at start."),
        Key(
            Flag("enable-flashinfer-autotune"),
            source="off: playbooks #97 (on gives NVRM 0x51), vLLM #52291 (deadlock over two "
            "nodes), sglang #35860 (results do "
            "not repeat, 2% to gain); on (Mia, NemoClaw)",
            scope="deepseek",
        ),
    ] = False
    VLLM_USE_DEEP_GEMM: Annotated[
        Switch,
        Field(description="Let vLLM choose DeepGEMM by itself."),
        Key(
            EngineEnv("VLLM_USE_DEEP_GEMM"),
            source="platforms/cuda.py:665-671@0.27.1 says yes for 12.x although the wheel has no "
            "such kernel",
            scope="deepseek",
        ),
    ] = False
    CUDA_HOME: Annotated[
        AbsolutePath,
        Field(description="CUDA toolkit that compiles kernels at run time."),
        Key(
            EngineEnv("CUDA_HOME"),
            source="13.3 beside the system's 13.0 (first seed)",
            scope="deepseek",
        ),
    ] = "/usr/local/cuda-13.3"
    TORCH_CUDA_ARCH_LIST: Annotated[
        Literal["12.1a"],
        Field(description="What kernels are compiled for: GB10."),
        Key(
            EngineEnv("TORCH_CUDA_ARCH_LIST"),
            source="sm_121a, agreed in the field",
            scope="deepseek",
        ),
    ] = "12.1a"


class Environment(BaseModel):
    """Keys that travel as environment of the engine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: Annotated[
        Integer,
        Field(description="How long one step may take before the engine gives up.", ge=30, le=3600),
        Key(
            EngineEnv("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"),
            source="600 (Reed), 1800 (most), 300 (stock); 60 ran in the lab",
            unit="s",
        ),
    ] = 600
    VLLM_ENGINE_READY_TIMEOUT_S: Annotated[
        Integer,
        Field(description="How long the engine may take to load and warm up.", ge=60, le=7200),
        Key(
            EngineEnv("VLLM_ENGINE_READY_TIMEOUT_S"),
            source="2700: CO's advice to give a start 45 minutes (5-6 warm, 9-13 cold); stock 600",
            unit="s",
        ),
    ] = 2700
    OMP_NUM_THREADS: Annotated[
        Integer,
        Field(description="OpenMP threads of each process.", ge=1, le=20),
        Key(
            EngineEnv("OMP_NUM_THREADS"),
            source="4, agreed in the field; 1 in the lab, two nodes on two cores",
            unit="threads",
        ),
    ] = 4
    VLLM_SPARSE_INDEXER_MAX_LOGITS_MB: Annotated[
        Integer,
        Field(
            description="Cap on the indexer's score matrix of one prefill chunk.", ge=64, le=2048
        ),
        Key(
            EngineEnv("VLLM_SPARSE_INDEXER_MAX_LOGITS_MB"),
            source="256, agreed in the field; stock 512",
            unit="MiB",
            scope="deepseek",
        ),
    ] = 256
    VLLM_USE_V2_MODEL_RUNNER: Annotated[
        Switch,
        Field(
            description="Model runner V2; DSpark runs on nothing else, and the control arm must "
            "not differ in it."
        ),
        Key(
            EngineEnv("VLLM_USE_V2_MODEL_RUNNER"),
            source="config/vllm.py:587-594@0.27.1; 1 (NVIDIA local-ai), never 0 (nepenth)",
            scope="deepseek",
        ),
    ] = True
    VLLM_USE_BREAKABLE_CUDAGRAPH: Annotated[
        Switch | None,
        Field(
            description="Eager breaks inside CUDA graphs; vLLM switches them on for this model "
            "when unset."
        ),
        Key(
            EngineEnv("VLLM_USE_BREAKABLE_CUDAGRAPH"),
            source="unset (Reed, ecohash: 0 is harmful); 0 (Mia +28.6% at one user, NemoClaw, "
            "nepenth, NVIDIA)",
            scope="deepseek",
        ),
    ] = None
    VLLM_COMPUTE_NANS_IN_LOGITS: Annotated[
        Switch,
        Field(
            description="Count requests whose logits hold a NaN (vllm:corrupted_requests_total)."
        ),
        Key(
            EngineEnv("VLLM_COMPUTE_NANS_IN_LOGITS"),
            source="off until its cost is measured; stock default off",
            scope="deepseek",
        ),
    ] = False
    EXPANDABLE_SEGMENTS: Annotated[
        Switch,
        Field(description="PyTorch's expandable allocator segments."),
        Key(
            Derived("PYTORCH_CUDA_ALLOC_CONF", "engine env"),
            source="off: playbooks #97 (needed to boot clean), Mia (163 to 1 memdesc errors); on "
            "(almost all); vLLM #55569",
            scope="deepseek",
        ),
    ] = False
    VLLM_CPU_KVCACHE_SPACE: Annotated[
        Integer,
        Field(description="KV pool of the CPU engine.", ge=1, le=64),
        Key(
            EngineEnv("VLLM_CPU_KVCACHE_SPACE"), source="1 ran in the lab", unit="GiB", scope="lab"
        ),
    ] = 1
    VLLM_CPU_OMP_THREADS_BIND: Annotated[
        Literal["nobind", "auto"],
        Field(description="Whether the CPU engine pins its threads."),
        Key(
            EngineEnv("VLLM_CPU_OMP_THREADS_BIND"),
            source="nobind ran in the lab; stock auto keeps one of two cores idle",
            scope="lab",
        ),
    ] = "nobind"
    TORCHDYNAMO_DISABLE: Annotated[
        Switch,
        Field(
            description="No torch.compile: the lab's nodes have no C++ compiler, and the first "
            "completion would die."
        ),
        Key(EngineEnv("TORCHDYNAMO_DISABLE"), source="ran in the lab", scope="lab"),
    ] = True
