"""What a guard is given: the node's settings, the machine, a way to ask, and how deep to go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from twinspark.guards.client import NOTHING, Client, Plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from twinspark.guards.exam import Exam
    from twinspark.guards.model import Check
    from twinspark.guards.recall import Oracle
    from twinspark.guards.settings import Settings
    from twinspark.guards.system import System

Battery = Literal["guard", "quick", "full"]
MARGIN_TOKENS: Final = 64  # kept free below the context limit for question and answer


@dataclass(frozen=True, slots=True)
class Depth:
    """How much a battery asks.

    Attributes:
        needles: Facts a document.
        tokens: Length of a document, tokens.
        repeats: Repetitions where a guard repeats.
        documents: Documents that Guard 4 prefills together.
        doses: Document counts of Guard 4's dose response.
        ladder: Rungs of the needle ladder, tokens.
    """

    needles: int
    tokens: int
    repeats: int
    documents: int
    doses: tuple[int, ...]
    ladder: tuple[int, ...]


# Guard 4 asks for 8 documents: with fewer, finding 12 reaches state blocks but not the main store
# (allocator replay: 0 of 4 documents at 4, 2 to 3 of 8 at 8). 44K is the first seed's trigger.
DEPTHS: Final[dict[Battery, Depth]] = {
    "guard": Depth(10, 2048, 3, 8, (8,), (2048,)),
    "quick": Depth(10, 2048, 3, 8, (8,), (2048, 8192)),
    "full": Depth(
        20, 8192, 5, 8, (1, 2, 4, 8), (2048, 8192, 16384, 32768, 44000, 131072, 262144, 524288)
    ),
}


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a guard may use.

    Attributes:
        node: Host name.
        settings: The node's rendered configuration.
        system: The machine.
        exam: How to ask and judge.
        oracle: Known figures, when the lab's model is served.
        depth: How much to ask.
        seed: Of the prompts and salts: another seed is cold KV.
        battery: Which battery runs.
        timeout: Limit for one request, seconds.
        plan: What the running guard may send (set by the runner).
        state: Folder of the history; None = compare with nothing.
    """

    node: str
    settings: Settings
    system: System
    exam: Exam
    oracle: Oracle | None
    depth: Depth
    seed: int
    battery: Battery = "guard"
    timeout: float = 120.0
    plan: Plan = NOTHING
    state: Path | None = None

    def client(self) -> Client:
        """A client that may send what this guard's plan says."""
        return Client(self.settings.url, self.settings.served_name, self.plan)

    @property
    def context_tokens(self) -> int:
        """Longest document that leaves room for a question, tokens."""
        limit = self.settings.max_model_len
        if self.oracle:
            limit = min(limit, self.oracle.max_tokens)
        return limit - MARGIN_TOKENS

    @property
    def document_tokens(self) -> int:
        """Length of an ordinary document at this depth, within the context limit."""
        return min(self.depth.tokens, self.context_tokens)

    @property
    def block_size(self) -> int:
        """Tokens a KV block; where nothing is rendered, vLLM's CPU default."""
        return self.settings.block_size or 128

    def salt(self, *parts: object) -> str:
        """A cache salt of this run alone."""
        return "-".join(["twinspark", str(self.seed), *map(str, parts)])


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard.

    Attributes:
        name: As typed after `--only`.
        scope: `local` runs on every node, `api` on the head.
        title: One line for the table of guards.
        batteries: Where it runs.
        run: The checks; raises `GuardError` when a request gives nothing to judge.
        plan: What it may send at most.
        applies: Why it does not apply here; empty when it does.
    """

    name: str
    scope: Literal["local", "api"]
    title: str
    batteries: frozenset[Battery]
    run: Callable[[Context], list[Check]]
    plan: Callable[[Context], Plan] = lambda _: NOTHING
    applies: Callable[[Context], str] = lambda _: ""


EVERY: Final[frozenset[Battery]] = frozenset({"guard", "quick", "full"})
BATTERIES: Final[frozenset[Battery]] = frozenset({"quick", "full"})
FULL: Final[frozenset[Battery]] = frozenset({"full"})
