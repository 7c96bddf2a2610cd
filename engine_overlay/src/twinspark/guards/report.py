"""Reports as files and as a table, and what only several of them together can say."""

from __future__ import annotations

import contextlib
import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from rich.table import Table
from rich.text import Text

from twinspark.guards.model import (
    Check,
    Kind,
    NodeReport,
    Report,
    first_error,
    shorten,
    verdict,
)

if TYPE_CHECKING:
    from pathlib import Path

_REPORT: Final = TypeAdapter(Report)
_STYLE: Final[dict[Kind, str]] = {
    "pass": "green", "wrong": "bold red", "truncated": "bold red", "slow": "bold red",
    "unreachable": "bold red", "refused": "bold red", "missing": "bold red", "note": "cyan",
    "skipped": "dim", "broken": "bold yellow",
}  # fmt: skip


class ReportError(Exception):
    """A report file cannot be read or written; the text names it."""


# What pictures and merge take from a check's figures, and from a node's facts. Checked where a
# file comes in; the figures themselves stay as they are.
_Count = Annotated[int, Field(ge=0, le=10**9)]


class _Readback(BaseModel):
    documents: Annotated[int, Field(ge=1, le=10**9)]
    tokens: _Count
    stretch: _Count
    map: list[Annotated[str, Field(min_length=1)]]
    bad: list[object]
    hurt: _Count
    seed_dose: str


class _Arm(BaseModel):
    logprobs: list[float | None] = []


class _Rung(BaseModel):
    tokens: _Count
    marks: list[str]


class _Acceptance(BaseModel):
    drafts: float
    rates: list[float | None]


class _SameSet(BaseModel):
    patches: list[tuple[str, str]] = []


class _WorkerFacts(BaseModel):
    facts: dict[str, str] = {}


class _Equal(BaseModel):
    nnodes: str = Field("1", pattern=r"^[0-9]{1,3}$")


_SHAPES: Final[dict[str, type[BaseModel]]] = {
    "*.readback": _Readback,
    "neighbours.*": _Arm,
    "ladder.*": _Rung,
    "acceptance": _Acceptance,
    "overlay_applied.same_set": _SameSet,
    "overlay_applied.facts": _WorkerFacts,
}


def write(report: Report, path: Path) -> None:
    """Write a report, replacing the file in one step.

    Raises:
        ReportError: It cannot be written.
    """
    write_bytes(_REPORT.dump_json(report, indent=1) + b"\n", path)


def write_bytes(body: bytes, path: Path) -> None:
    """Replace a file in one step.

    Raises:
        ReportError: It cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(body)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ReportError(f"{path}: {error.strerror}") from error


def check_writable(*paths: Path | None) -> None:
    """Find out before a run whether its report can be written after it; leaves nothing behind.

    Raises:
        ReportError: One cannot, or two would be one file.
    """
    given = [path.resolve() for path in paths if path]
    if len(set(given)) < len(given):
        raise ReportError(f"{given[0]}: one file for two reports: nothing was run")
    for path in paths:
        if path is None:
            continue
        part = path.with_name(f".{path.name}.{os.getpid()}")
        made = [folder for folder in path.parents if not folder.exists()]
        try:
            if path.is_dir():
                raise ReportError(f"{path}: a folder: name a file in it: nothing was run")
            path.parent.mkdir(parents=True, exist_ok=True)
            part.touch()
            part.unlink()
        except (FileExistsError, NotADirectoryError) as error:
            raise ReportError(f"{path}: not below a folder: nothing was run") from error
        except OSError as error:
            raise ReportError(f"{path}: {error.strerror}: nothing was run") from error
        finally:
            for folder in made:
                with contextlib.suppress(OSError):  # not made after all, or in use by now
                    folder.rmdir()


def read(path: Path) -> Report:
    """Read a report.

    Raises:
        ReportError: Unreadable, or of another schema version.
    """
    try:
        body = path.read_bytes()
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    try:
        report = _REPORT.validate_json(body)
    except ValidationError as error:
        raise ReportError(f"{path}: not a report of this version: {first_error(error)}") from error
    _check_shapes(report, path)
    return report


def _check_shapes(report: Report, path: Path) -> None:
    parts: list[tuple[str, type[BaseModel], object]] = [
        (f"equal of {node.node}", _Equal, node.equal) for node in report.nodes
    ]
    parts += [
        (f"data of {check.name}", shape, check.data)
        for check in report.every()
        for pattern, shape in _SHAPES.items()
        if check.data and fnmatchcase(check.name, pattern)
    ]
    for name, shape, values in parts:
        try:
            shape.model_validate(values)
        except ValidationError as error:
            raise ReportError(f"{path}: {name}: {first_error(error)}") from error


def merge(reports: list[Report]) -> Report:
    """One report of all nodes, with the checks across them."""
    nodes = sorted((node for report in reports for node in report.nodes), key=lambda n: n.rank)
    return Report(nodes, [_ranks(nodes), _equal(nodes), *_patches(nodes), *_facts(nodes)])


def _ranks(nodes: list[NodeReport]) -> Check:
    """Every rank once: a node without a report is not a node that passed."""
    wanted = max((int(node.equal.get("nnodes", "1")) for node in nodes), default=1)
    ranks = [node.rank for node in nodes]
    return verdict(
        "merge.nodes", "both", ranks == list(range(wanted)), f"ranks 0 to {wanted - 1}, one each",
        shorten([f"{node.node} {node.rank}" for node in nodes]) or "none", failure="missing",
    )  # fmt: skip


def _equal(nodes: list[NodeReport]) -> Check:
    keys = sorted({key for node in nodes for key in node.equal})
    off = []
    for key in keys:
        values = {node.node: node.equal.get(key, "(not given)") for node in nodes}
        if len(set(values.values())) > 1:
            off.append(f"{key}: " + " / ".join(f"{n} {v[:40]}" for n, v in values.items()))
    compared = len(nodes) > 1 and bool(keys)
    return verdict(
        "identity.equal", "both", compared and not off, f"{len(keys)} facts equal",
        f"{len(keys) - len(off)} equal" if compared else f"{len(nodes)} report(s)", shorten(off),
    )  # fmt: skip


def _patches(nodes: list[NodeReport]) -> list[Check]:
    sets: dict[str, set[tuple[str, ...]]] = {
        node.node: {tuple(pair) for pair in (check.data or {}).get("patches", [])}
        for node in nodes
        for check in node.checks
        if check.name == "overlay_applied.same_set"
    }
    if len(sets) < 2:
        return []
    # held by one and not by the other: the symmetric difference, over any number of nodes
    everything: set[tuple[str, ...]] = set().union(*sets.values())
    differ = {pair for pair in everything if not all(pair in held for held in sets.values())}
    names = sorted({name for name, _ in differ})
    return [
        verdict(
            "overlay.equal",
            "both",
            not differ,
            "the same patches",
            f"{len(names)} differ",
            shorten(names),
        )
    ]


def _facts(nodes: list[NodeReport]) -> list[Check]:
    """The workers' facts, as far as more than one node states them."""
    stated = [
        (node.node, (check.data or {}).get("facts", {}))
        for node in nodes
        for check in node.checks
        if check.name == "overlay_applied.facts"
    ]
    if len(stated) < 2:
        return []
    names = sorted({name for _, facts in stated for name in facts})
    off = [name for name in names if len({facts.get(name) for _, facts in stated}) > 1]
    return [
        verdict(
            "overlay.facts_equal", "both", not off, f"{len(names)} equal",
            f"{len(names) - len(off)} equal", shorten(off),
        )
    ]  # fmt: skip


def table(report: Report) -> Table:
    """The report as one table; labels and versions stand in its caption."""
    shown = Table(title="twinspark guards", title_justify="left", expand=False)
    for column in ("guard", "node", "", "expected", "actual", "detail"):
        shown.add_column(column, overflow="fold")
    for check in report.every():
        word = Text(check.kind, style=_STYLE[check.kind])
        cells = (check.expected, check.actual, check.detail)
        shown.add_row(check.name, check.node, word, *(Text(cell) for cell in cells))
    shown.caption = summary(report)
    return shown


def summary(report: Report) -> str:
    """One line: counts, truth labels, versions."""
    every = report.every()
    passed = sum(check.ok is True for check in every)
    failed = sum(check.ok is False for check in every)
    other = len(every) - passed - failed
    labels = sorted({node.label for node in report.nodes})
    versions = sorted({f"vllm {n.fingerprint.vllm}" for n in report.nodes})
    counts = f"{passed} passed, {failed} failed, {other} without a verdict"
    return "; ".join([counts, *labels, *versions])
