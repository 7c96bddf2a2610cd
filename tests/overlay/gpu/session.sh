#!/usr/bin/env bash
# On the GPU machine, from the repository's root: install the carried engine, then run the arms.
# usage: session.sh install | arms | served | rounding | faults | boots | kernels | fused     (results go to $OUT)
set -uo pipefail
repo=$PWD
gpu=$repo/tests/overlay/gpu

settings() {
    # One PYTHONPATH entry carries the overlay's entry point, as an installed wheel would.
    export PYTHONPATH=/tmp/site:/tmp/dist:$repo/engine_overlay/src:$repo/tests
    export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
    export CUDA_HOME=/usr/local/cuda VLLM_DEEP_GEMM_WARMUP=skip DG_JIT_USE_NVRTC=0
    export VLLM_USE_FLASHINFER_SAMPLER=0 PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK=1
    export VLLM_ALLREDUCE_USE_SYMM_MEM=0 CUDA_CACHE_MAXSIZE=4294967296
    export DG_JIT_CACHE_DIR=/tmp/cache/dg TILELANG_CACHE_DIR=/tmp/cache/tl
    export TRITON_CACHE_DIR=/tmp/cache/tr VLLM_CACHE_ROOT=/tmp/cache/vllm
    export CUDA_CACHE_PATH=/tmp/cache/nv CUTE_DSL_CACHE_DIR=/tmp/cache/cute
    export QUACK_CACHE_DIR=/tmp/cache/quack VLLM_LOGGING_LEVEL=WARNING
    mkdir -p /tmp/cache
}

install() {
    local nvidia
    mkdir -p /tmp/site /tmp/dist/twinspark-0.1.0.dist-info
    (cd /tmp/in && chmod +x zstd && cat part.?? |
        LD_LIBRARY_PATH=/tmp/in:${LD_LIBRARY_PATH:-} ./zstd -dc --long=27 | tar x -C /tmp/site) || exit 1
    nvidia=$(python3 -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1] / "nvidia")')
    for part in cudnn cusparselt cu13 nvshmem; do ln -sfn "$nvidia/$part" /tmp/site/nvidia/$part; done
    printf 'Metadata-Version: 2.1\nName: twinspark\nVersion: 0.1.0\n' \
        >/tmp/dist/twinspark-0.1.0.dist-info/METADATA
    printf '[vllm.general_plugins]\ntwinspark = twinspark.plugin:register\n' \
        >/tmp/dist/twinspark-0.1.0.dist-info/entry_points.txt
    settings
    python3 "$gpu/random_checkpoint.py" /tmp/plain & python3 "$gpu/random_checkpoint.py" /tmp/dspark --dspark
    wait
}

arm() { # arm NAME MODEL [options]: one engine in the background, its log in $OUT
    local name=$1
    shift
    timeout "${LIMIT:-540}" python3 "$gpu/engine_run.py" "$@" --arm "$name" --out "$OUT/r/$name.json" \
        >"/tmp/$name.log" 2>&1 || { echo "$name failed"; tail -25 "/tmp/$name.log"; }
}

arms() {
    settings
    mkdir -p "$OUT/r"
    [ -n "${SKIP_STOCK:-}" ] || VLLM_PLUGINS='' arm v1-stock /tmp/plain &
    arm v1-overlay /tmp/plain &
    [ -n "${SKIP_STOCK:-}" ] || VLLM_PLUGINS='' arm v2-stock /tmp/dspark --spec &
    arm v2-overlay /tmp/dspark --spec &
    (
        VLLM_PLUGINS='' python3 "$gpu/kernel_probes.py" "$OUT/r/probes-stock.json"
        python3 "$gpu/kernel_probes.py" "$OUT/r/probes-overlay.json"
    ) 2>&1 | tail -20 &
    wait
    collect
}

served() { # our kernels in the engine: beside DeepGEMM's and alone; `first`, `cold`: with empty JIT caches
    settings
    mkdir -p "$OUT/r"
    (
        export TWINSPARK_KERNELS=triton TRITON_CACHE_DIR=/tmp/first/tr TILELANG_CACHE_DIR=/tmp/first/tl
        arm v1-overlay-first /tmp/plain &
        export TRITON_CACHE_DIR=/tmp/cold/tr TILELANG_CACHE_DIR=/tmp/cold/tl
        arm v1-overlay-cold /tmp/plain --without-warmup &
        wait
    ) &
    TWINSPARK_KERNELS=check arm v1-overlay-check /tmp/plain &
    TWINSPARK_KERNELS=triton arm v1-overlay-kernels /tmp/plain &
    TWINSPARK_KERNELS=check arm v2-overlay-check /tmp/dspark --spec &
    TWINSPARK_KERNELS=triton arm v2-overlay-kernels /tmp/dspark --spec &
    wait
    collect
}

rounding() { # whose roundings move the first log-prob; after `served`, for its JIT caches
    settings
    mkdir -p "$OUT/r"
    TWINSPARK_KERNELS=triton timeout "${LIMIT:-240}" \
        python3 "$gpu/rounding_probe.py" /tmp/plain "$OUT/r/rounding.json" 2>&1 | tail -30
    collect
}

faults() { # a server and the node's guards; after `served`, for its JIT caches
    settings
    mkdir -p "$OUT/r"
    timeout "${LIMIT:-560}" python3 "$gpu/fault_arms.py" /tmp/dspark "$OUT/r/faults.json" 2>&1 | tail -40
    collect
}

boots() { # one after another: each looks at free memory
    settings
    mkdir -p "$OUT/r"
    export VLLM_ENABLE_STARTUP_PLAN=1 LIMIT=120
    local round
    for round in 1 2; do
        rm -rf /tmp/cache/vllm/startup_plan
        arm "boot-$round-cold" /tmp/dspark --spec --boot-only --utilization 0.3
        arm "boot-$round-warm" /tmp/dspark --spec --boot-only --utilization 0.3
        arm "boot-$round-pinned" /tmp/dspark --spec --boot-only
    done
    collect
}

kernels() { # the kernels' own tests with the engine's torch and Triton
    settings
    export TRITON_INTERPRET=0
    python3 -m pytest --noconftest -p no:cacheprovider -q -rP -m gpu tests/kernels/test_on_gpu.py
}

fused() { # logits and top-k in one against ours or DeepGEMM's logits and the engine's own top-k
    settings
    python3 engine_overlay/benchmarks/fused_topk.py --out "$OUT/fused-topk.json"
}

collect() {
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader >"$OUT/r/card.txt"
    tar cJf "$OUT/cache.txz" -C /tmp cache # unpack to /tmp: the next machine starts with it
    (cd "$OUT/r" && tar czf "$OUT/results.tgz" .)
    (cd /tmp && tar czf "$OUT/logs.tgz" ./*.log 2>/dev/null)
    rm -rf "$OUT/r"
}

"$1"
