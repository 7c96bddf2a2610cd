"""What a check is, and how findings become verdicts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from twinspark.host.node import NoAnswerError, Node, NotAskedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

OK = "ok"
WRONG = "wrong"
WARNING = "warning"
BLOCKED = "blocked"  # another check that this one builds on has failed: nothing is said twice
UNKNOWN = "unknown"  # the node could not be asked, or gave no answer
PENDING = "pending"  # check mode: what is judged would only be made


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw."""

    ok: bool
    expected: str
    actual: str
    detail: str = ""
    row: int = 0  # a row of docs/symptoms.md other than the check's own


@dataclass(frozen=True, slots=True)
class Check:
    """One question about one node, or about both when `pair` is set.

    `row` is its row in docs/symptoms.md; `after` names checks whose failure makes this one moot;
    `warns`: a deviation that does not stop a deploy.
    """

    id: str
    group: str
    row: int
    title: str
    look: Callable[[Node], Finding] | None = None
    pair: Callable[[Sequence[Node]], Finding] | None = None
    after: tuple[str, ...] = ()
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of a report."""

    check: str
    group: str
    node: str
    state: str
    expected: str
    actual: str
    detail: str
    row: int

    @property
    def unanswered(self) -> bool:
        """Whether the node was asked in vain; what was not asked at all has only a detail."""
        return self.state == UNKNOWN and bool(self.actual)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def _ask(check: Check, nodes: Sequence[Node]) -> Finding:
    if check.look is not None:
        return check.look(nodes[0])
    if check.pair is not None:
        return check.pair(nodes)
    raise ValueError(f"{check.id} asks nothing")


def judge_one(
    check: Check, nodes: Sequence[Node], stopped: dict[str, set[str]], pending: Iterable[str]
) -> Verdict:
    """Ask one check and say what came out."""
    name = "+".join(node.name for node in nodes)
    blame = sorted(
        one for one in check.after if any(node.name in stopped.get(one, set()) for node in nodes)
    )
    if blame:
        return Verdict(
            check.id,
            check.group,
            name,
            BLOCKED,
            "",
            "",
            f"not judged: see {', '.join(blame)}",
            check.row,
        )
    try:
        found = _ask(check, nodes)
    except NotAskedError as error:
        return Verdict(check.id, check.group, name, UNKNOWN, "", "", str(error), check.row)
    except NoAnswerError as error:
        return Verdict(check.id, check.group, name, UNKNOWN, "an answer", str(error), "", check.row)
    state = OK if found.ok else WARNING if check.warns else WRONG
    if state == WRONG and check.id in set(pending):
        state = PENDING
    row = found.row or check.row
    return Verdict(
        check.id, check.group, name, state, found.expected, found.actual, found.detail, row
    )


def judge(
    checks: Sequence[Check], nodes: Sequence[Node], pending: Iterable[str] = ()
) -> tuple[Verdict, ...]:
    """Ask the checks in order, each of every node, or of all together when it is about a pair.

    A check follows those that it names in `after`.
    """
    verdicts: list[Verdict] = []
    stopped: dict[str, set[str]] = {}
    waived = tuple(pending)
    for check in checks:
        circles = [tuple(nodes)] if check.pair is not None else [(node,) for node in nodes]
        if check.pair is not None and len(nodes) < 2:
            continue
        for circle in circles:
            verdict = judge_one(check, circle, stopped, waived)
            verdicts.append(verdict)
            if verdict.state in {WRONG, WARNING, BLOCKED, PENDING}:
                stopped.setdefault(check.id, set()).update(node.name for node in circle)
    return tuple(verdicts)
