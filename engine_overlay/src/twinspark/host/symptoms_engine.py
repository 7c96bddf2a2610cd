"""Rows about the engine; guards look at most of them, or a role makes them impossible."""

from __future__ import annotations

from twinspark.host.symptom import Symptom

ENGINE_ROWS: dict[int, Symptom] = {
    21: Symptom(
        "installing flashinfer downgrades torch",
        "its dependencies",
        "install from the lock, assert versions",
        "ecohash-co",
        "role engine_venv: hash-locked, no dependency is resolved on a node",
    ),
    22: Symptom(
        "libcudart.so.12 missing, or torch without CUDA on aarch64",
        "a wheel of the wrong index",
        "take the lock's wheels",
        "epappas/gx10-cluster, decisions",
        "role engine_venv",
    ),
    23: Symptom(
        "defaults four times too small, the start-up plan aborts",
        "NVML gives no memory figure on GB10",
        "set sizes explicitly; VLLM_ENABLE_STARTUP_PLAN off (0.27.1: the default)",
        "vllm 57378",
    ),
    24: Symptom(
        "`num_tokens > 64`, a division by zero or a hang in the warm-up",
        "buckets and block sizes for sm_121",
        "the overlay's patches 1-5",
        "the first seed; ecohash-co; nepenth",
        "guard overlay_applied",
    ),
    25: Symptom(
        "half speed, perfect text",
        "the draft loader drops shared experts",
        "watch acceptance (25.7% against 60%)",
        "tonyd2wild patch 4",
        "guard acceptance",
    ),
    26: Symptom(
        "garble, foreign script or tool markers after a cold prefill",
        "a missing prefill guard; C128A stride",
        "the overlay's patches 12 and 13",
        "vllm 51318, 52448; the first seed",
        "guards neighbours and recall",
    ),
    27: Symptom(
        "reasoning loops to the token limit at ten users and more",
        "the same stride",
        "the overlay's patch 13",
        "vllm 52448",
        "guard neighbours",
    ),
    28: Symptom(
        "both ranks hang silently at the start, or: Cannot assign requested address",
        "flags differ between ranks, or both have one VLLM_HOST_IP",
        "deploy both from one variant file",
        "tonyd2wild; colonel-otto/3x-dgx-spark-mesh",
    ),
    30: Symptom(
        "gloo picks docker0, Wi-Fi or 127.0.1.1",
        "it resolves the host's name",
        "GLOO_SOCKET_IFNAME per node",
        "epappas/gx10-cluster; eugr 227",
    ),
    31: Symptom(
        "after a restart of the head alone the pair never joins",
        "stale store, zombie worker",
        "stop the head, restart the worker, start the head",
        "Reederey87; MiaAI-Lab 38; eugr 335",
        "role serve",
    ),
    32: Symptom(
        "the engine ends with 0 and the unit stays dead",
        "Restart=on-failure",
        "Restart=always, limits in [Unit]",
        "the first seed; tonyd2wild 8",
        "role serve and the exit-status patch",
    ),
    33: Symptom(
        "a stop during the long start leaves ranks with 100 GiB",
        "ExecStop runs from active only",
        "ExecStopPost",
        "colonel-otto/3x-dgx-spark-mesh",
        "role serve",
    ),
    34: Symptom(
        "StartLimit is ignored and verify passes",
        "wrong section",
        "verify must print nothing",
        "colonel-otto/3x-dgx-spark-mesh",
        "role serve",
    ),
    35: Symptom(
        "/health says 200 while the peer is dead",
        "it never asks the workers",
        "ask for a token",
        "Reederey87, watchdog",
        "guard first_token",
    ),
    36: Symptom(
        "the engine is killed by a compilation of more than 300 s",
        "a fresh kernel shape",
        "warm up in the deploy; VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800",
        "MiaAI-Lab 65, 87",
        "engine stage's warm-up",
    ),
    37: Symptom(
        "the first measurement is a regression",
        "cold caches",
        "warm up, then measure twice",
        "Reederey87",
        "the bench",
    ),
    38: Symptom(
        "LocalEntryNotFound, or the engine waits for the model hub",
        "refs/main missing, or the hub is asked",
        "HF_HUB_OFFLINE=1; weights in a plain folder",
        "Reederey87",
    ),
    39: Symptom(
        "the download stalls",
        "hf-xet",
        "HF_HUB_DISABLE_XET=1, timeouts",
        "xet-core 883",
        "role checkpoint",
    ),
    42: Symptom(
        "performance cores spin",
        "a one-second busy loop on shared memory",
        "a 2 ms loop",
        "MiaAI-Lab 79; nepenth",
        "none yet",
    ),
    48: Symptom(
        "decode starves under a long prefill",
        "chunk scheduling",
        "--long-prefill-token-threshold 1024",
        "MiaAI-Lab 27, 43, 90",
        "the variant's setting",
    ),
}
