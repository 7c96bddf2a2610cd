"""#13b: a row with NaN gives a token id that exists, and is counted."""

from __future__ import annotations

# ruff: noqa: PLC0415 - neither torch nor vLLM may be imported before the engine does it
import functools
from typing import TYPE_CHECKING, Any

from twinspark import report
from twinspark.patches.pins import pinned
from twinspark.patching import Context, Edit, Patch

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

SAMPLER = "vllm.v1.worker.gpu.sample.sampler:gumbel_sample"
SPECULATOR = "vllm.v1.worker.gpu.spec_decode.speculator:gumbel_sample"
DSPARK = "vllm.v1.worker.gpu.spec_decode.dspark.speculator:gumbel_sample"
MARKOV = "vllm.model_executor.models.qwen3_dspark:DSparkMarkovHead.embed"
COUNTER = "nan_rows"
_EVERY = 16  # eager calls between two looks at the counter


class NanCounter:
    """Counts rows with NaN on the device, inside captured graphs too, without a synchronisation.

    The count is copied to pinned host memory now and then by eager calls, and read by the next.
    """

    def __init__(self) -> None:
        self._device: dict[torch.device, torch.Tensor] = {}
        self._host: dict[torch.device, torch.Tensor] = {}
        self._calls = 0
        self._reported = 0

    def add(self, rows: torch.Tensor) -> None:
        """Add the true entries of `rows`, bool of any shape."""
        import torch

        capturing = rows.is_cuda and torch.cuda.is_current_stream_capturing()
        total = self._device.get(rows.device)
        if total is None:
            if capturing:
                return  # memory made inside a capture belongs to its graph
            total = torch.zeros((), dtype=torch.int64, device=rows.device)
            self._device[rows.device] = total
            self._host[rows.device] = torch.zeros((), dtype=torch.int64, pin_memory=rows.is_cuda)
        total.add_(rows.sum())
        if not capturing:
            self._publish(rows.device, total)

    def _publish(self, device: torch.device, total: torch.Tensor) -> None:
        self._calls += 1
        if self._calls % _EVERY and device.type == "cuda":
            return
        host = self._host[device]
        seen = int(host)
        if device.type == "cuda":
            host.copy_(total, non_blocking=True)
        else:
            seen = int(total)
        if seen > self._reported:
            report.current().count(COUNTER, seen - self._reported)
            self._reported = seen


COUNTS = NanCounter()


def guarded(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wrap `gumbel_sample`: an id within the vocabulary for every row."""

    @functools.wraps(original)
    def gumbel_sample(logits: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ANN401 - vLLM's
        sampled = original(logits, *args, **kwargs)
        # amax keeps NaN, and reads the row once; +inf is as broken as NaN.
        largest = logits.amax(dim=-1)
        COUNTS.add(largest.isnan() | largest.isposinf())
        return sampled.clamp_(0, logits.shape[-1] - 1)

    return gumbel_sample


def in_range(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wrap the Markov head's gather: ids outside the table are brought inside and counted."""

    @functools.wraps(original)
    def embed(self: Any, token_ids: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - vLLM's
        last = self.markov_w1.weight.shape[0] - 1
        COUNTS.add((token_ids < 0) | (token_ids > last))
        return original(self, token_ids.clamp(0, last))

    return embed


def _install(edit: Edit) -> None:
    if edit.module.__name__ == "vllm.model_executor.models.qwen3_dspark":
        edit.replace("DSparkMarkovHead.embed", in_range(edit.original("DSparkMarkovHead.embed")))
    else:
        edit.replace("gumbel_sample", guarded(edit.original("gumbel_sample")))


def _applies(context: Context) -> str | None:
    return context.unless_cuda("its sampler takes torch.argmax, which names the NaN itself")


PATCH = Patch(
    id="13b-nan-argmax",
    title="A NaN row sends the draft head's gather out of range",
    layer="graphs",
    targets=(SAMPLER, SPECULATOR, DSPARK, MARKOV),
    upstream_sha256=pinned(
        SAMPLER,
        SPECULATOR,
        DSPARK,
        MARKOV,
        "vllm.v1.worker.gpu.sample.gumbel:gumbel_sample",
        "vllm.v1.worker.gpu.sample.gumbel:gumbel_block_argmax",
        "vllm.v1.worker.gpu.spec_decode.dspark.speculator:DSparkSpeculator._sample_sequential",
    ),
    vllm=("0.27.1",),
    symptom="A device-side assert in an embedding gather ends the engine; or a NaN row quietly "
    "becomes some token, counted nowhere.",
    cause="sample/gumbel.py:153 takes a block maximum with index, which NaN makes arbitrary (on "
    "H200 the block's last lane, in range in all eight cases tried; the post's crash was not "
    "reproduced there); qwen3_dspark.py gathers with whatever comes.",
    fix="Sampled ids and the ids that the Markov head gathers with are kept inside the vocabulary; "
    "rows with NaN are counted on the device and appear in the process report.",
    upstream="No guard up to 0.33.0.",
    remove_when="Stock bounds sampled ids and counts NaN rows by default.",
    constraint="A crash costs minutes of weight load on both nodes.",
    applies=_applies,
    install=_install,
)
