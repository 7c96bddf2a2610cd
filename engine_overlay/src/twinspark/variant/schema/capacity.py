"""Keys about context, concurrency, the KV pool and scheduling."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from twinspark.variant.keys import Decimal, Flag, Integer, Key, Switch


class Capacity(BaseModel):
    """How much is served at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    TENSOR_PARALLEL_SIZE: Annotated[
        Integer,
        Field(description="Ranks that share each layer: one per node.", ge=2, le=2),
        Key(
            Flag("tensor-parallel-size"),
            source="two nodes with one GPU each; agreed in the field",
            unit="ranks",
        ),
    ] = 2
    DISTRIBUTED_EXECUTOR_BACKEND: Annotated[
        Literal["mp"],
        Field(description="How ranks are started: by the unit of each node, without Ray."),
        Key(
            Flag("distributed-executor-backend"),
            source="config/parallel.py:963-971@0.27.1 refuses ray with --nnodes",
        ),
    ] = "mp"
    MAX_MODEL_LEN: Annotated[
        Integer,
        Field(
            description="Longest context of one request, prompt and answer.", ge=1024, le=1_048_576
        ),
        Key(
            Flag("max-model-len"),
            source="1,048,576: the checkpoint's own limit, agreed in the field",
            unit="tokens",
        ),
    ] = 1_048_576
    MAX_NUM_SEQS: Annotated[
        Integer,
        Field(description="Requests that run at once.", ge=1, le=24),
        Key(
            Flag("max-num-seqs"),
            source="the field: 1 (crash-proof), 4-6 (Mia, tony, NemoClaw, nepenth), 5 (lutong), 8 "
            "(NVIDIA local-ai), "
            "12 (first seed, Reed, ecohash), 16 (CO); 32 kills the ring (vLLM #46448), so 24 is "
            "the bound",
            unit="requests",
        ),
    ] = 6
    MAX_NUM_BATCHED_TOKENS: Annotated[
        Integer,
        Field(
            description="Tokens of one step; twice that is in flight with async scheduling.",
            ge=256,
            le=32_768,
        ),
        Key(
            Flag("max-num-batched-tokens"),
            source="the field: 8192 (most), 4096 (1.62x to 2.76x the KV, -8% decode), 1024 "
            "(lutong), 16384 (halves the KV); "
            "the engine's own log recommends to raise it, which is a trap",
            unit="tokens",
        ),
    ] = 4096
    GPU_MEMORY_UTILIZATION: Annotated[
        Decimal,
        Field(
            description="Share of the node's memory that the engine may plan with.", ge=0.5, le=0.92
        ),
        Key(
            Flag("gpu-memory-utilization"),
            source="the field: 0.75 to 0.90; 0.80 NemoClaw, Anemll, hazyumps; 0.84 nepenth, first "
            "seed; above 0.828 the boot "
            "fails on kits with 100.9-102.2 GiB free (vLLM compares it with what is free)",
            unit="of total memory",
            scope="deepseek",
        ),
    ] = 0.80
    KV_CACHE_MEMORY_BYTES: Annotated[
        Integer,
        Field(description="The pinned KV pool of one rank.", ge=2**30, le=40 * 2**30),
        Key(
            Flag("kv-cache-memory-bytes"),
            source="planner: `twinspark variant plan`; the field pins 21316272128 (Reed, 0.85) "
            "and 28235618304 (nepenth, 0.84)",
            unit="bytes",
            scope="deepseek",
        ),
    ] = 12 * 2**30
    KV_CACHE_DTYPE: Annotated[
        Literal["fp8_ds_mla"],
        Field(description="Record of the main KV cache: 584 bytes a token."),
        Key(
            Flag("kv-cache-dtype"),
            source="models/deepseek_v4/attention.py:103-114@0.27.1: every other label either dies "
            "or is rewritten to this one",
            scope="deepseek",
        ),
    ] = "fp8_ds_mla"
    BLOCK_SIZE: Annotated[
        Integer,
        Field(description="Tokens of one KV block.", ge=16, le=1024),
        Key(
            Flag("block-size"),
            source="256 for this model: flashinfer_sparse.py:94-95 and indexer.py:175-177@0.27.1 "
            "take nothing else; "
            "64 was tried and reverted (nepenth, first seed #1, #2). The CPU engine takes "
            "multiples of 32",
            unit="tokens",
        ),
    ] = 256
    ENABLE_PREFIX_CACHING: Annotated[
        Switch,
        Field(description="Keep the KV of prompts that have been seen."),
        Key(Flag("enable-prefix-caching"), source="on, agreed in the field; stock default on"),
    ] = True
    ENABLE_CHUNKED_PREFILL: Annotated[
        Switch,
        Field(description="Spread a long prompt over several steps."),
        Key(Flag("enable-chunked-prefill"), source="on, agreed in the field; stock default on"),
    ] = True
    LONG_PREFILL_TOKEN_THRESHOLD: Annotated[
        Integer,
        Field(description="Cap on one request's prompt tokens a step; 0 is none.", ge=0, le=32_768),
        Key(
            Flag("long-prefill-token-threshold"),
            source="0 (stock, lutong); the field also 1024 (Mia, nepenth) and 4096 (Reed)",
            unit="tokens",
        ),
    ] = 0
    ASYNC_SCHEDULING: Annotated[
        Switch,
        Field(
            description="Schedule a step while the one before runs; doubles the tokens in flight."
        ),
        Key(
            Flag("async-scheduling"),
            source="on (Mia, ecohash, tony, NemoClaw); off (Reed, lutong); "
            "config/vllm.py:540-561@0.27.1 for the doubling",
            scope="deepseek",
        ),
    ] = True
    DISTRIBUTED_TIMEOUT_SECONDS: Annotated[
        Integer,
        Field(
            description="How long a collective may hang before the process group gives up.",
            ge=60,
            le=7200,
        ),
        Key(
            Flag("distributed-timeout-seconds"),
            source="900 (Reed); stock 600 for NCCL",
            unit="s",
            scope="deepseek",
        ),
    ] = 900
