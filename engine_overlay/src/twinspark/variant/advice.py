"""Why a key or a value that others use is refused, for files that come from elsewhere."""

from __future__ import annotations

_AUTO_DIES = (
    "vLLM 0.27.1 dies on it with a bare assertion in every worker "
    "(models/deepseek_v4/attention.py:103): write KV_CACHE_DTYPE=fp8_ds_mla"
)
_REWRITTEN = (
    "vLLM 0.27.1 silently rewrites it to fp8_ds_mla, so the label would say less than "
    "what runs: write KV_CACHE_DTYPE=fp8_ds_mla"
)
_DSPARK_ONLY = (
    "the 0731 checkpoint's mtp.* tensors are DSpark's stages, there is no plain MTP "
    "head in it: write SPEC_METHOD=dspark or none"
)
_FORK = "is a fork's name, stock vLLM 0.27.1 does not know it"

VALUES: dict[tuple[str, str], str] = {
    ("KV_CACHE_DTYPE", "nvfp4_ds_mla"): (
        "a fork's label for the same record of 584 bytes a token that stock vLLM 0.27.1 calls "
        "fp8_ds_mla (there is no 4-bit KV in it, "
        "and 0.27.1 rejects the name): write KV_CACHE_DTYPE=fp8_ds_mla"
    ),
    **{("KV_CACHE_DTYPE", label): _AUTO_DIES for label in ("auto", "bfloat16", "float16", "nvfp4")},
    **{
        ("KV_CACHE_DTYPE", label): _REWRITTEN
        for label in ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_per_token_head")
    },
    **{
        ("SPEC_METHOD", method): _DSPARK_ONLY
        for method in ("mtp", "deepseek_mtp", "eagle", "eagle3", "ngram")
    },
    (
        "MOE_BACKEND",
        "flashinfer_b12x",
    ): "0.27.1 refuses it for MXFP4 experts (a fork added it): write MOE_BACKEND=marlin",
    ("MOE_BACKEND", "b12x"): f"{_FORK}: write MOE_BACKEND=marlin",
    ("MOE_BACKEND", "mxfp4_marlin"): f"{_FORK}: write MOE_BACKEND=marlin",
    ("TOOL_CALL_PARSER", "deepseekv4"): "the parser is called deepseek_v4",
    (
        "DISTRIBUTED_EXECUTOR_BACKEND",
        "ray",
    ): "vLLM 0.27.1 refuses ray with more than one node of its own: write mp",
}

_INVENTORY = (
    "a fact of one host, rendered to node.env: set it in the inventory "
    "(twinspark_rails), not in a variant"
)

KEYS: dict[str, str] = {
    "VLLM_PLUGINS": (
        "must stay unset: a list here that leaves twinspark out would serve the "
        "engine unpatched. Remove the line"
    ),
    "VLLM_HOST_IP": _INVENTORY,
    "GLOO_SOCKET_IFNAME": _INVENTORY,
    "NCCL_SOCKET_IFNAME": _INVENTORY,
    "NCCL_IB_HCA": _INVENTORY,
    "NCCL_IB_GID_INDEX": _INVENTORY,
    "NODE_RANK": "a fact of one host: set twinspark_rank in the inventory",
    "MASTER_ADDR": "the head's first rail, from the inventory: remove the line",
    "HEADLESS": "every rank but 0 is headless by itself: remove the line",
    "VLLM_DEEPSEEK_V4_FLASHINFER_SM120_DECODE": f"{_FORK}: remove the line",
    "VLLM_DEEPSEEK_V4_FLASHINFER_SM120_PREFILL": f"{_FORK}: remove the line",
    "VLLM_MXFP4_USE_MARLIN": "0.27.1 does not know it: write MOE_BACKEND=marlin",
    "VLLM_RPC_TIMEOUT": "0.27.1 does not know it: VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS bounds a step",
    "PYTORCH_CUDA_ALLOC_CONF": "rendered from EXPANDABLE_SEGMENTS: set that one",
    "TRITON_PTXAS_PATH": "Triton does not read it for this chip: remove the line",
    "TRITON_PTXAS_BLACKWELL_PATH": (
        "the overlay's kernels are chosen by what Triton's own ptxas makes of them: remove the line"
    ),
    "VLLM_CACHE_ROOT": (
        "caches lie below /var/cache/twinspark, the unit's own folder: remove the line"
    ),
}
