"""What a guard says: one record a check, one report a node, and what the exit status is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence  # noqa: TC003 - pydantic resolves the annotations
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

SCHEMA: Final = "twinspark.guard/1"

Kind = Literal[
    "pass",  # ran, and found what it expected
    "wrong",  # an answer came, and it is not the right one
    "truncated",  # the answer was cut at its token limit before it could be judged
    "slow",  # no answer within the limit, or an answer slower than the limit
    "unreachable",  # no connection
    "refused",  # the server answered with an error status
    "missing",  # a file, process or report that must be there is not
    "note",  # worth saying, no verdict
    "skipped",  # does not apply here; the detail says why
    "broken",  # the guard itself could not run
]
Scope = Literal["local", "api", "merge"]
Moment = Annotated[float, Field(ge=0, lt=253_402_300_800)]  # Unix seconds, to the year 9999
FAILURES: Final[frozenset[str]] = frozenset(
    {"wrong", "truncated", "slow", "unreachable", "refused", "missing"}
)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a report.

    Attributes:
        name: The guard, or `guard.part`.
        node: Host name, or `both` for a check over the nodes.
        ok: True, False, or None when there is no verdict (note, skipped, broken).
        expected: What an intact server gives.
        actual: What this one gave.
        detail: What to look at next.
        kind: The word for the outcome.
        seconds: Wall time of the guard that made it.
        data: Figures for the pictures; its shape is the guard's own.
    """

    name: str
    node: str
    ok: bool | None
    expected: str
    actual: str
    detail: str = ""
    kind: Kind = "pass"
    seconds: float = 0.0
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The versions on which a good result rests; a change asks for a new full battery."""

    vllm: str
    overlay: str
    cuda: str
    driver: str
    kernel: str

    def changes(self, other: Fingerprint) -> list[str]:
        """`name old -> new` for each field in which `other` (the newer) differs."""
        return [
            f"{name} {getattr(self, name)} -> {getattr(other, name)}"
            for name in ("vllm", "overlay", "cuda", "driver", "kernel")
            if getattr(self, name) != getattr(other, name)
        ]


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What one node found.

    Attributes:
        node: Host name.
        rank: Rank of the node in the pair.
        time: Unix seconds at the end of the run.
        label: Truth label of every number in it.
        battery: `guard`, `quick` or `full`.
        seed: Seed of the prompts: the same seed sends the same prompts.
        fingerprint: Versions it ran on.
        equal: Facts that must be the same on both nodes.
        per_node: Facts that may differ.
        checks: The results, in the order in which they ran.
    """

    node: str
    rank: int
    time: Moment
    label: str
    battery: str
    seed: int
    fingerprint: Fingerprint
    equal: dict[str, str]
    per_node: dict[str, str]
    checks: list[Check]


@dataclass(frozen=True, slots=True)
class Report:
    """One file: the reports of one or more nodes, and the checks made across them."""

    nodes: list[NodeReport]
    checks: list[Check] = field(default_factory=list)
    schema: Literal["twinspark.guard/1"] = SCHEMA

    def every(self) -> list[Check]:
        """All checks, node by node, those across the nodes last."""
        return [check for node in self.nodes for check in node.checks] + self.checks


def exit_status(checks: Iterable[Check]) -> int:
    """0 all passed, 1 one or more found a fault, 2 nothing was checked or a guard could not run."""
    seen = list(checks)
    if any(check.ok is False for check in seen):
        return 1
    if any(check.kind == "broken" for check in seen) or not any(check.ok for check in seen):
        return 2
    return 0


def verdict(  # noqa: PLR0913, PLR0917 - the columns of the table, in its order
    name: str,
    node: str,
    passed: bool,
    expected: str,
    actual: str,
    detail: str = "",
    *,
    failure: Kind = "wrong",
    data: dict[str, Any] | None = None,
) -> Check:
    """A check with a verdict: kind `pass`, or `failure` when it did not pass."""
    kind: Kind = "pass" if passed else failure
    return Check(name, node, passed, expected, actual, detail, kind, data=data)


def no_verdict(name: str, node: str, kind: Literal["note", "skipped", "broken"], why: str) -> Check:
    """A line without a verdict; it never counts as a check that ran."""
    return Check(name, node, None, "", "", why, kind)


def first_error(error: ValidationError) -> str:
    """`where: what is wrong` of a record's first error: one line, no names of classes."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    what = re.sub(r" or (an )?instance of \w+", "", first["msg"])
    return f"{where}: {what}" if where else what


def shorten(items: Sequence[str], limit: int = 6) -> str:
    """`a, b, c and 4 more`: a detail stays one line."""
    shown = ", ".join(items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"
