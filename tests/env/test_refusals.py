from __future__ import annotations

import re

import pytest

from env.variants import edited, line_of
from twinspark.variant import Variant, VariantError, loads


def refused(name="flash-tp2", **changes):
    """The refusal of a shipped file with changed lines; every line of it names its line."""
    text = edited(name, **changes)
    with pytest.raises(VariantError) as caught:
        loads(text, f"{name}.env")
    lines = str(caught.value).splitlines()
    for line in lines:
        key = line.split(": ")[1]
        assert line.startswith(f"{name}.env:{line_of(text, key)}: {key}: "), line
    return lines


# One refusal each: the key that it names, and what it says to do.
@pytest.mark.parametrize(
    ("changes", "key", "advice"),
    [
        # unknown, misspelt, or not a variant's business
        ({"MAX_NUM_SEQ": "4"}, "MAX_NUM_SEQ", "did you mean MAX_NUM_SEQS?"),
        ({"KV_CACHE_DTYP": "x"}, "KV_CACHE_DTYP", "did you mean KV_CACHE_DTYPE?"),
        ({"FOO": "1"}, "FOO", "env/README.md"),
        ({"VLLM_PLUGINS": "other"}, "VLLM_PLUGINS", "must stay unset"),
        ({"VLLM_PLUGINS": ""}, "VLLM_PLUGINS", "must stay unset"),
        ({"NCCL_IB_HCA": "mlx5_0"}, "NCCL_IB_HCA", "inventory"),
        ({"VLLM_HOST_IP": "10.0.0.1"}, "VLLM_HOST_IP", "inventory"),
        ({"VLLM_MXFP4_USE_MARLIN": "1"}, "VLLM_MXFP4_USE_MARLIN", "MOE_BACKEND=marlin"),
        # outside bounds
        ({"MAX_NUM_SEQS": "0"}, "MAX_NUM_SEQS", "at least 1"),
        ({"MAX_NUM_SEQS": "32"}, "MAX_NUM_SEQS", "at most 24"),
        ({"MAX_MODEL_LEN": "2000000"}, "MAX_MODEL_LEN", "at most 1048576"),
        ({"GPU_MEMORY_UTILIZATION": "0.95"}, "GPU_MEMORY_UTILIZATION", "at most 0.92"),
        ({"API_PORT": "80"}, "API_PORT", "at least 1024"),
        ({"TENSOR_PARALLEL_SIZE": "1"}, "TENSOR_PARALLEL_SIZE", "at least 2"),
        # not of the type
        ({"MAX_NUM_SEQS": "six"}, "MAX_NUM_SEQS", "whole number"),
        ({"MAX_MODEL_LEN": "1_048_576"}, "MAX_MODEL_LEN", "whole number"),
        ({"MAX_NUM_SEQS": ""}, "MAX_NUM_SEQS", "whole number"),
        ({"GPU_MEMORY_UTILIZATION": "nan"}, "GPU_MEMORY_UTILIZATION", "is not a number"),
        ({"GPU_MEMORY_UTILIZATION": "80%"}, "GPU_MEMORY_UTILIZATION", "is not a number"),
        ({"ENFORCE_EAGER": "True"}, "ENFORCE_EAGER", "true or false"),
        ({"ENFORCE_EAGER": "0"}, "ENFORCE_EAGER", "true or false"),
        ({"MODEL": "models/flash"}, "MODEL", "absolute path"),
        ({"MODEL": "/srv/../etc"}, "MODEL", "absolute path"),
        ({"SERVED_MODEL_NAME": "'two words'"}, "SERVED_MODEL_NAME", "is not a name"),
        ({"NCCL_DEBUG": "TRACE"}, "NCCL_DEBUG", "'WARN' or 'INFO'"),
        # the block
        ({"BLOCK_SIZE": "64"}, "BLOCK_SIZE", "BLOCK_SIZE=256"),
        ({"BLOCK_SIZE": "128"}, "BLOCK_SIZE", "BLOCK_SIZE=256"),
        # labels of the KV cache
        ({"KV_CACHE_DTYPE": "nvfp4_ds_mla"}, "KV_CACHE_DTYPE", "584 bytes"),
        ({"KV_CACHE_DTYPE": "auto"}, "KV_CACHE_DTYPE", "KV_CACHE_DTYPE=fp8_ds_mla"),
        ({"KV_CACHE_DTYPE": "bfloat16"}, "KV_CACHE_DTYPE", "KV_CACHE_DTYPE=fp8_ds_mla"),
        ({"KV_CACHE_DTYPE": "fp8"}, "KV_CACHE_DTYPE", "silently rewrites"),
        ({"KV_CACHE_DTYPE": "fp7"}, "KV_CACHE_DTYPE", "'fp8_ds_mla'"),
        # speculation
        ({"SPEC_TOKENS": "4"}, "SPEC_TOKENS", "SPEC_TOKENS=5"),
        ({"SPEC_TOKENS": "0"}, "SPEC_TOKENS", "SPEC_TOKENS=5"),
        ({"SPEC_METHOD": "mtp"}, "SPEC_METHOD", "no plain MTP head"),
        ({"SPEC_METHOD": "deepseek_mtp"}, "SPEC_METHOD", "no plain MTP head"),
        ({"SPEC_METHOD": "none"}, "SPEC_TOKENS", "write 0"),
        ({"VLLM_USE_V2_MODEL_RUNNER": "false"}, "VLLM_USE_V2_MODEL_RUNNER", "write true"),
        # context and pool
        ({"MAX_NUM_BATCHED_TOKENS": "16384"}, "MAX_MODEL_LEN", "write MAX_NUM_BATCHED_TOKENS=8192"),
        ({"KV_CACHE_MEMORY_BYTES": "8000000000"}, "MAX_MODEL_LEN", "7.63 GiB"),
        ({"KV_CACHE_MEMORY_BYTES": "21316272128"}, "KV_CACHE_MEMORY_BYTES", "pin at most"),
        ({"GPU_MEMORY_UTILIZATION": "0.7"}, "KV_CACHE_MEMORY_BYTES", "UTILIZATION=0.77"),
        # steps and graphs
        ({"ENABLE_CHUNKED_PREFILL": "false"}, "ENABLE_CHUNKED_PREFILL", "write true"),
        ({"ENFORCE_EAGER": "true"}, "CUDAGRAPH_MODE", "write NONE"),
        ({"CUDAGRAPH_MAX_CAPTURE_SIZE": "35"}, "CUDAGRAPH_MAX_CAPTURE_SIZE", "write 36"),
        # kernels that GB10 has not
        ({"LINEAR_BACKEND": "auto"}, "LINEAR_BACKEND", "write triton"),
        ({"LINEAR_BACKEND": "deep_gemm"}, "LINEAR_BACKEND", "no SM120 kernel"),
        ({"MOE_BACKEND": "auto"}, "MOE_BACKEND", "write marlin"),
        ({"MOE_BACKEND": "deep_gemm"}, "MOE_BACKEND", "no SM120 kernel"),
        ({"MOE_BACKEND": "flashinfer_b12x"}, "MOE_BACKEND", "a fork added it"),
        ({"VLLM_USE_DEEP_GEMM": "true"}, "VLLM_USE_DEEP_GEMM", "no SM120 kernel"),
        ({"TWINSPARK_KERNELS": "deepgemm"}, "VLLM_USE_DEEP_GEMM", "write true"),
        # the rest
        ({"MASTER_PORT": "8000"}, "MASTER_PORT", "take another"),
        ({"DISTRIBUTED_EXECUTOR_BACKEND": "ray"}, "DISTRIBUTED_EXECUTOR_BACKEND", "write mp"),
        ({"DTYPE": "float32"}, "DTYPE", "write auto"),
        ({"VLLM_CPU_KVCACHE_SPACE": "1"}, "VLLM_CPU_KVCACHE_SPACE", "remove the line"),
    ],
)  # fmt: skip
def test_variant__refuses_bad_input_with_one_line_that_says_what_to_do(changes, key, advice):
    lines = refused(**changes)
    assert len(lines) == 1, lines
    assert f": {key}: " in lines[0]
    assert advice in lines[0]


@pytest.mark.parametrize(
    ("changes", "key", "advice"),
    [
        ({"BLOCK_SIZE": "40"}, "BLOCK_SIZE", "multiple of 32"),
        ({"MAX_MODEL_LEN": "65536"}, "MAX_MODEL_LEN", "at most 32768"),
        ({"KV_CACHE_DTYPE": "fp8_ds_mla"}, "KV_CACHE_DTYPE", "means nothing for"),
        ({"SPEC_METHOD": "dspark"}, "SPEC_METHOD", "means nothing for"),
        ({"MAX_MODEL_LEN": "1000"}, "MAX_MODEL_LEN", "at least 1024"),
    ],
)  # fmt: skip
def test_lab_variant__has_rules_of_its_own(changes, key, advice):
    (line,) = refused("lab-cpu", **changes)
    assert f": {key}: " in line
    assert advice in line


def test_step__must_hold_one_decode_step_of_all_requests():
    changes = {"MAX_NUM_SEQS": "24", "SPEC_TOKENS": "15", "MAX_NUM_BATCHED_TOKENS": "256"}
    (line,) = refused(**changes)
    assert ": MAX_NUM_BATCHED_TOKENS: " in line
    assert "384 tokens" in line


def test_variant__names_all_that_is_wrong_in_the_file_s_order():
    lines = refused(SPEC_TOKENS="4", BLOCK_SIZE="64", MOE_BACKEND="auto")
    assert [line.split(": ")[1] for line in lines] == ["BLOCK_SIZE", "SPEC_TOKENS", "MOE_BACKEND"]


def test_pool_refusal__offers_a_context_that_then_fits():
    (line,) = refused(MAX_NUM_BATCHED_TOKENS="16384")
    offered = line.partition("MAX_MODEL_LEN=")[2].split()[0]
    text = edited("flash-tp2", MAX_NUM_BATCHED_TOKENS="16384", MAX_MODEL_LEN=offered)
    assert str(loads(text, "x.env").MAX_MODEL_LEN) == offered


def test_pool_refusal__offers_a_pool_that_then_fits():
    (line,) = refused(KV_CACHE_MEMORY_BYTES="8000000000")
    offered = line.partition("pin at least ")[2].split()[0]
    text = edited("flash-tp2", KV_CACHE_MEMORY_BYTES=offered)
    assert str(loads(text, "x.env").KV_CACHE_MEMORY_BYTES) == offered
    with pytest.raises(VariantError, match="KV_CACHE_MEMORY_BYTES"):
        loads(edited("flash-tp2", KV_CACHE_MEMORY_BYTES=str(int(offered) - 1)), "x.env")


@pytest.mark.parametrize(
    "changes",
    [
        {"ASYNC_SCHEDULING": "false", "MAX_NUM_BATCHED_TOKENS": "8192"},
        {"TWINSPARK_KERNELS": "deepgemm", "VLLM_USE_DEEP_GEMM": "true", "MOE_BACKEND": "deep_gemm"},
        {"SPEC_TOKENS": "7"},
        {"ENFORCE_EAGER": "true", "CUDAGRAPH_MODE": "NONE"},
        {"CUDAGRAPH_MAX_CAPTURE_SIZE": "72"},
        {"MAX_NUM_SEQS": None},
    ],
)
def test_variant__takes_what_is_possible(changes):
    assert isinstance(loads(edited("flash-tp2", **changes), "x.env"), Variant)


@pytest.mark.parametrize("text", ["", "# a comment\n", "MAX_NUM_SEQS=6\n"])
def test_variant__refuses_a_file_that_is_empty_or_cut_short(text):
    with pytest.raises(VariantError, match="MODEL_KIND is missing"):
        loads(text, "cut.env")


@pytest.mark.parametrize(
    "changes",
    [
        {"MAX_NUM_BATCHED_TOKENS": "32768"},  # one halving does not help
        {"MAX_NUM_BATCHED_TOKENS": "16384", "KV_CACHE_MEMORY_BYTES": "3000000000"},
        {"GPU_MEMORY_UTILIZATION": "0.5"},  # the weights alone are more
        {"GPU_MEMORY_UTILIZATION": "0.68"},  # room, but not for this context
        {"KV_CACHE_MEMORY_BYTES": "42949672960"},
        {"KV_CACHE_MEMORY_BYTES": "1073741824", "GPU_MEMORY_UTILIZATION": "0.69"},
        {"KV_CACHE_MEMORY_BYTES": "1073741824", "MAX_NUM_SEQS": "16"},
        {"ENABLE_CHUNKED_PREFILL": "false", "MAX_MODEL_LEN": "32768",
         "MAX_NUM_BATCHED_TOKENS": "32768", "KV_CACHE_MEMORY_BYTES": "1073741824"},
    ],
    ids=str,
)  # fmt: skip
def test_memory_refusal__offers_only_what_is_then_taken(changes):
    (line,) = refused(**changes)
    ways = line.removesuffix(" (`twinspark variant plan` prints the table)")
    ways = ways.rpartition(": ")[2]
    assert ". " not in line
    offers = 0
    for way in re.split(r", or (?=write|pin)", ways):
        offered = dict(re.findall(r"([A-Z_]{6,})=([0-9.]*[0-9])", way))
        if pinned := re.search(r"pin (?:at least |at most )?(\d+)", way):
            offered["KV_CACHE_MEMORY_BYTES"] = pinned[1]
        assert offered, way
        loads(edited("flash-tp2", **{**changes, **offered}), "x.env")
        offers += 1
    assert offers


def test_memory_refusals__of_both_rules_together_can_be_followed():
    changes = {"MAX_NUM_BATCHED_TOKENS": "32768", "GPU_MEMORY_UTILIZATION": "0.70"}
    first, second = refused(**changes)
    offered = dict(re.findall(r"write ([A-Z_]+)=([0-9.]+)", f"{first}{second}"))
    assert set(offered) == {
        "MAX_NUM_BATCHED_TOKENS", "MAX_MODEL_LEN", "GPU_MEMORY_UTILIZATION"
    }  # fmt: skip
    for lever in ("MAX_NUM_BATCHED_TOKENS", "MAX_MODEL_LEN"):
        taken = {name: offered[name] for name in (lever, "GPU_MEMORY_UTILIZATION")}
        loads(edited("flash-tp2", **{**changes, **taken}), "x.env")


def test_smaller_batch__is_the_largest_halving_that_fits():
    (line,) = refused(MAX_NUM_BATCHED_TOKENS="32768")
    assert "write MAX_NUM_BATCHED_TOKENS=8192 (the cheap lever)" in line
