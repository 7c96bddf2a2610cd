"""What a variant asks of one node's memory, as figures and as tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from twinspark.variant.document import IN_FLIGHT
from twinspark.variant.planner import (
    GIB,
    RANK_WEIGHTS_BYTES,
    budget_left,
    flash_layout,
    gib,
    granted_bytes,
)

if TYPE_CHECKING:
    from rich.console import Console

    from twinspark.variant.schema import Variant

FREE_AT_START_BYTES = int(100.9 * GIB)  # the least that the field reports on a kit, of 121.69


@dataclass(frozen=True, slots=True)
class Plan:
    """The budget of one node. **Rendered**: computed, nothing of it was measured on a Spark here.

    Attributes:
        variant: Name of the variant.
        context: Longest context, tokens.
        in_flight: Tokens scheduled and not settled.
        need: KV of one request of that context, bytes.
        pool: Pinned pool, bytes.
        longest_context: Longest context that the pool holds with these tokens in flight.
        granted: Memory that the utilization grants the engine, bytes.
        weights: Weights of one rank, bytes (the field's figure).
        left: What remains for activations and graphs, bytes.
        boots_everywhere: Whether every kit seen in the field has that much memory free at start.
        needs: KV of that context by tokens in flight, bytes.
    """

    variant: str
    context: int
    in_flight: int
    need: int
    pool: int
    longest_context: int
    granted: int
    weights: int
    left: int
    boots_everywhere: bool
    needs: dict[int, int]

    def as_json(self) -> dict[str, object]:
        """As JSON, with its schema's name and the label of its truth."""
        return {"schema": "twinspark.variant-plan/1", "truth": "rendered", **asdict(self)}

    def show(self, console: Console) -> None:
        """Print both tables."""
        needs = Table("tokens in flight", "KV of one request", title=f"{self.context:,} tokens")
        for tokens, need in self.needs.items():
            here = "  <- this variant" if tokens == self.in_flight else ""
            over = "  more than the pool" if need > self.pool else ""
            needs.add_row(f"{tokens:,}", f"{gib(need)}{over}{here}")
        console.print(needs)
        budget = Table("memory of one node", "", title=f"{self.variant} (rendered, not measured)")
        budget.add_row("granted by GPU_MEMORY_UTILIZATION", gib(self.granted))
        budget.add_row("weights of one rank", gib(self.weights))
        budget.add_row("pinned KV pool", gib(self.pool))
        budget.add_row("left for activations and graphs", gib(self.left))
        budget.add_row("longest context that the pool holds", f"{self.longest_context:,} tokens")
        if not self.boots_everywhere:
            budget.add_row(
                "free memory wanted at start", f"{gib(self.granted)}: some kits have less"
            )
        console.print(budget)


def plan(variant: Variant) -> Plan:
    """The budget of a variant for GPUs."""
    layout = flash_layout(draft=variant.draft_tokens > 0)
    in_flight, pool = variant.in_flight_tokens, variant.KV_CACHE_MEMORY_BYTES
    granted = granted_bytes(variant.GPU_MEMORY_UTILIZATION)
    return Plan(
        variant=variant.name,
        context=variant.MAX_MODEL_LEN,
        in_flight=in_flight,
        need=layout.bytes_needed(variant.MAX_MODEL_LEN, in_flight),
        pool=pool,
        longest_context=layout.longest_context(pool, in_flight),
        granted=granted,
        weights=RANK_WEIGHTS_BYTES,
        left=budget_left(variant.GPU_MEMORY_UTILIZATION, pool),
        boots_everywhere=granted <= FREE_AT_START_BYTES,
        needs={
            tokens: layout.bytes_needed(variant.MAX_MODEL_LEN, tokens)
            for tokens in sorted({*IN_FLIGHT, in_flight})
        },
    )
