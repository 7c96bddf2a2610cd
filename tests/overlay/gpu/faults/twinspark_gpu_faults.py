"""A vLLM plugin that does damage on purpose inside the GPU engine, switched by a file.

`TWINSPARK_GPU_FAULTS` names a file that holds the fault's name, read again at every call:

    stale_rows     #13's decode rows as stock packs them: a captured graph reads them elsewhere
    slow_indexer   the prefill logits row by row in torch, as a fallback would (#10)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "TWINSPARK_GPU_FAULTS"


def fault() -> str:
    """The fault that is switched on; empty for none."""
    try:
        return Path(os.environ[VARIABLE]).read_text(encoding="utf-8").strip()
    except OSError:
        return ""  # being rewritten


def register() -> None:
    """Put the faults under the overlay's own patches, before those are installed."""
    if VARIABLE not in os.environ or getattr(sys, "_twinspark_gpu_faults", False):
        return
    sys._twinspark_gpu_faults = True  # type: ignore[attr-defined]
    from twinspark import selection  # noqa: PLC0415 - only where a fault is wanted
    from twinspark.patches.graphs import c128a_stride  # noqa: PLC0415

    c128a_stride.at_buffer_stride = _stale(c128a_stride)
    selection.launcher = _slow(selection.launcher)


def _stale(patch: Any) -> Callable[[Any], Any]:
    repair = patch.at_buffer_stride

    def at_buffer_stride(kernel: Any) -> Callable[..., Any]:
        # The patch asks for its function while the module still holds stock's.
        stock, repaired = sys.modules[patch.MODULE].build_c128a_topk_metadata, repair(kernel)

        def build_c128a_topk_metadata(*args: Any, **named: Any) -> Any:
            return (stock if fault() == "stale_rows" else repaired)(*args, **named)

        return build_c128a_topk_metadata

    return at_buffer_stride


def _slow(intact: Callable[..., Any]) -> Callable[..., Any]:
    def launcher(name: str, *args: Any, **options: Any) -> Any:
        if name == "mqa_logits" and fault() == "slow_indexer":
            return rows_in_torch
        return intact(name, *args, **options)

    return launcher


def rows_in_torch(  # noqa: PLR0917 - the operation's own arguments
    q: Any, k: Any, k_scale: Any, weights: Any, ks: Any, ke: Any, *, clean_logits: bool = False
) -> Any:
    """The indexer's prefill logits as one writes them without a kernel: right, and slow."""
    import torch  # noqa: PLC0415 - only in a worker

    width = -(-k.shape[0] // 256) * 256
    out = torch.empty((q.shape[0], width), dtype=torch.float32, device=q.device)
    out = out[:, : k.shape[0]]
    if clean_logits:
        out.fill_(float("-inf"))
    keys = k.float() * k_scale[:, None]
    for row in range(q.shape[0]):
        low, high = int(ks[row]), int(ke[row])
        score = torch.relu(q[row].float() @ keys[low:high].T)
        out[row, low:high] = (score * weights[row, :, None]).sum(0)
    return out
