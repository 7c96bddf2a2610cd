"""A vLLM general plugin that does damage on purpose, so that guards can be seen to notice it.

Every fault is a key of the JSON file named by TWINSPARK_FAULTS, read again before every step, so
that a fault is switched without a restart. Without that variable nothing is patched.

    kv       zero | zero_k | zero_v | scale_v | swap: damage block `block` of the second of at
             least `min` requests that prefill in one step, once it is filled
    layers, heads, ranks   lists that narrow `kv` down; `scale` for scale_v
    from_block   with `kv` zero: all blocks from this one on, of every request that is longer
    soften   factor on the logits, `when` = always | alone | decode | prefill
    noise    relative size of noise on the logits, another in each step
    nan      true: one logit of each row is no number
    draft    true: every drafted token is replaced
    text     inserted into the middle of answers of more than 12 tokens
    loop     repeat the last three words of such answers so often
    hang_s   sleep before each step, on `ranks`

CPU KV layout: [blocks, KV heads, block, 2 * head], of each head its K half, then its V half.
Source: CPUAttentionBackend of the vLLM 0.27.1 CPU build, found by the probes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

LONG_ANSWER = 12
PREFILL = 64  # more tokens in a step than a cached question or a draft ever has


def fault() -> dict[str, Any]:
    """The faults that are switched on."""
    try:
        return json.loads(Path(os.environ["TWINSPARK_FAULTS"]).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # being rewritten: no fault in this step


def register() -> None:
    """Patch the worker in workers and the detokenizer in the API server."""
    if "TWINSPARK_FAULTS" not in os.environ or getattr(sys, "_twinspark_faults", False):
        return
    sys._twinspark_faults = True  # type: ignore[attr-defined]
    callers, frame = [], sys._getframe(1)
    while frame is not None:
        callers.append(frame.f_code.co_filename)
        frame = frame.f_back  # type: ignore[assignment]
    if any(name.endswith("worker_base.py") for name in callers):
        _patch_worker()
    elif any(name.endswith("arg_utils.py") for name in callers):
        _patch_text()


def _patch_text() -> None:
    from vllm.v1.engine.detokenizer import BaseIncrementalDetokenizer as Detokenizer  # noqa: PLC0415

    original = Detokenizer.get_next_output_text

    def get_next_output_text(self: Any, finished: bool, delta: bool) -> str:
        answer: str = original(self, finished, delta)
        now = fault()
        if not finished or delta or len(answer.split()) <= LONG_ANSWER:
            return answer
        words = answer.split()
        if now.get("text"):
            words.insert(len(words) // 2, now["text"])
        return " ".join([*words, *(words[-3:] * int(now.get("loop", 0)))])

    Detokenizer.get_next_output_text = get_next_output_text


def _patch_worker() -> None:
    from vllm.v1.spec_decode.ngram_proposer import NgramProposer  # noqa: PLC0415
    from vllm.v1.worker.gpu_worker import Worker  # noqa: PLC0415

    step, propose = Worker.execute_model, NgramProposer.propose
    hurt: set[str] = set()

    def execute_model(self: Any, scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        now = fault()
        here = now.get("ranks") is None or self.rank in now["ranks"]
        if here and now.get("hang_s"):
            time.sleep(float(now["hang_s"]))
        _soften(self.model_runner.model, now, scheduled)
        made = step(self, scheduled, *args, **kwargs)
        if here and "from_block" in now:
            _cut_off(self.model_runner, scheduled, now)
        elif here and now.get("kv"):
            _damage(self.model_runner, scheduled, now, hurt)
        return made

    def draft(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = propose(self, *args, **kwargs)
        return [[(t + 7) % 4096 for t in row] for row in found] if fault().get("draft") else found

    Worker.execute_model = execute_model
    NgramProposer.propose = draft


def _soften(model: Any, now: dict[str, Any], scheduled: Any) -> None:
    """Set the factor of this step; the model's own method is wrapped once."""
    if not hasattr(model, "_faults_factor"):
        original = model.compute_logits

        def compute_logits(*args: Any, **kwargs: Any) -> Any:
            logits = original(*args, **kwargs)
            return None if logits is None else _distort(logits * model._faults_factor)

        model.compute_logits = compute_logits
    counts = list(scheduled.num_scheduled_tokens.values())
    alone = len(counts) == 1
    prefill = not alone and max(counts, default=0) > PREFILL
    state = {
        "always": True,
        "alone": alone,
        "prefill": prefill,
        "decode": not alone and not prefill,
    }
    wanted = "soften" in now and state[now.get("when", "always")]
    model._faults_factor = float(now["soften"]) if wanted else 1.0


def _distort(logits: Any) -> Any:
    import torch  # noqa: PLC0415

    now = fault()
    if now.get("noise"):
        logits = logits * (1 + float(now["noise"]) * torch.randn_like(logits))
    if now.get("nan"):
        logits[:, 0] = float("nan")
    return logits


def _cut_off(runner: Any, scheduled: Any, now: dict[str, Any]) -> None:
    """Zero the far end of each long document, chunk by chunk as it is filled."""
    first, size = int(now["from_block"]), runner.cache_config.block_size
    for name, tokens in scheduled.num_scheduled_tokens.items():
        request = runner.requests[name]
        filled = (request.num_computed_tokens + tokens) // size
        if tokens <= PREFILL or filled <= first:
            continue
        for layer in runner.compilation_config.static_forward_context.values():
            if getattr(layer, "kv_cache", None) is not None:
                layer.kv_cache[request.block_ids[0][first:filled]] = 0


def _damage(runner: Any, scheduled: Any, now: dict[str, Any], hurt: set[str]) -> None:
    counts = scheduled.num_scheduled_tokens
    prefills = [name for name, tokens in counts.items() if tokens > PREFILL]
    if len(prefills) < int(now.get("min", 3)) or prefills[1] in hurt:
        return
    request, at = runner.requests[prefills[1]], int(now.get("block", 1))
    ids, size = request.block_ids[0], runner.cache_config.block_size
    if at >= len(ids) or request.num_computed_tokens + counts[prefills[1]] < (at + 1) * size:
        return
    hurt.add(prefills[1])
    other = runner.requests[prefills[0]].block_ids[0][at]
    layers = runner.compilation_config.static_forward_context.values()
    for number, layer in enumerate(layers):
        cache = getattr(layer, "kv_cache", None)
        if cache is not None and number in now.get("layers", [number]):
            _spoil(cache, ids[at], other, now)


def _spoil(cache: Any, block: int, other: int, now: dict[str, Any]) -> None:
    heads = cache.shape[1]
    mine, theirs = cache[block].view(heads, 2, -1), cache[other].view(heads, 2, -1)
    for head in now.get("heads", range(heads)):
        match now["kv"]:
            case "zero":
                mine[head].zero_()
            case "zero_k":
                mine[head, 0].zero_()
            case "zero_v":
                mine[head, 1].zero_()
            case "scale_v":
                mine[head, 1].mul_(float(now.get("scale", 0.9)))
            case "swap":
                mine[head].copy_(theirs[head])
            case unknown:
                raise ValueError(f"no kv fault {unknown!r}")
