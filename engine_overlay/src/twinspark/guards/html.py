"""A report as one self-contained page: verdict, pictures, every check, versions."""

from __future__ import annotations

import time
from html import escape
from typing import TYPE_CHECKING, Any, Final

from twinspark.guards import svg
from twinspark.guards.checks.blocks import SEED_DOSE
from twinspark.guards.model import exit_status
from twinspark.guards.report import summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinspark.guards.model import Check, NodeReport, Report

_CSS: Final = """
:root{--bg:#fdfdfb;--ink:#1d2327;--dim:#66707a;--edge:#d9dcd6;--good:#2e7d4f;--bad:#c0392b;
--soft:#d9962b;--cut:#7d5bb5;--bar:#3b6ea5}
@media (prefers-color-scheme:dark){:root{--bg:#16191c;--ink:#e6e8ea;--dim:#98a2ab;--edge:#343a40;
--good:#4caf7a;--bad:#e8705f;--soft:#e3b04b;--cut:#a68bdb;--bar:#6fa3d8}}
body{background:var(--bg);color:var(--ink);font:15px/1.45 system-ui,sans-serif;margin:2rem auto;
max-width:60rem;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .4rem}p{margin:.3rem 0}
.verdict{display:inline-block;padding:.1rem .6rem;border-radius:.3rem;color:#fff}
.pass{background:var(--good)}.fail{background:var(--bad)}.none{background:var(--soft)}
.dim{color:var(--dim)}figure{margin:.6rem 0 1.2rem}figcaption{color:var(--dim);font-size:.9rem}
svg{width:100%;height:auto;max-width:640px;display:block}svg text{font:12px system-ui,sans-serif;
fill:var(--ink)}rect.good,circle.good{fill:var(--good)}rect.bad,circle.bad{fill:var(--bad)}
rect.soft,circle.soft{fill:var(--soft)}rect.cut,circle.cut{fill:var(--cut)}rect.bar{fill:var(--bar)}
line.rule{stroke:var(--edge)}line.yardstick{stroke:var(--dim);stroke-dasharray:4 3}
table{border-collapse:collapse;width:100%;font-size:.88rem}td,th{text-align:left;vertical-align:top;
padding:.25rem .5rem;border-bottom:1px solid var(--edge);overflow-wrap:anywhere}
td.word{font-weight:600}tr.failed td.word{color:var(--bad)}tr.passed td.word{color:var(--good)}
"""
DOSES: Final = tuple(f"blocks.{count}.readback" for count in SEED_DOSE)
_VERDICTS: Final = {0: ("pass", "passed"), 1: ("fail", "failed"), 2: ("none", "not checked")}


def page(report: Report) -> str:
    """The page; every text of the report is escaped."""
    css, word = _VERDICTS[exit_status(report.every())]
    when = max((node.time for node in report.nodes), default=0.0)
    title = f"twinspark guards: {word}"
    figures = "".join(
        f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, picture in pictures(report)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_CSS}</style></head><body>"
        f'<h1>twinspark guards <span class="verdict {css}">{word}</span></h1>'
        f"<p>{escape(summary(report))}</p>"
        f'<p class="dim">{time.strftime("%F %T UTC", time.gmtime(when))}</p>'
        f"{figures}<h2>Checks</h2>{_table(report.every())}<h2>Versions</h2>{_nodes(report.nodes)}"
        "</body></html>\n"
    )


def pictures(report: Report) -> Iterator[tuple[str, str]]:
    """Caption and picture of each guard that has one."""
    checks = report.every()
    found = {check.name: check.data for check in checks if check.data}
    for name, data in found.items():
        if name.endswith(".readback"):
            yield _map(name, data)
    short = [data for name, data in found.items() if name in DOSES]
    if len(short) > 1:
        yield _dose(short)
    arms = {
        name.partition(".")[2]: data["logprobs"]
        for name, data in found.items()
        if name.startswith("neighbours.") and "logprobs" in data
    }
    if arms:
        caption = (
            "Guard 5: nats lost by the same answer alone and in company; the dashed line is the "
            "first seed's soft answer (0.74, the field's figure)"
        )
        yield caption, svg.arms(arms)
    rungs = [
        (data["tokens"], data["marks"])
        for name, data in found.items()
        if name.startswith("ladder.")
    ]
    if rungs:
        yield "Needle ladder: three needles at each length, in tokens", svg.ladder(rungs)
    if "acceptance" in found and found["acceptance"]["rates"]:
        rates = found["acceptance"]["rates"]
        drafts = found["acceptance"]["drafts"]
        caption = (
            f"Draft acceptance by position over {drafts:.0f} drafts; dashed: the second seed's "
            "position 0 with the wrong slot (0.41) and the right one (0.74), the field's figures"
        )
        yield caption, svg.bars(rates, [str(at) for at in range(len(rates))], [0.41, 0.74])


def _map(name: str, data: dict[str, Any]) -> tuple[str, str]:
    bad = len(data["bad"])
    caption = (
        f"Guard 4, {name.removesuffix('.readback')}: {data['documents']} documents of "
        f"{data['tokens']} tokens prefilled together, {sum(map(len, data['map']))} blocks read "
        f"back, {bad} damaged in {data['hurt']} documents"
    )
    return caption, svg.block_map(data["map"], data["stretch"])


def _dose(doses: list[dict[str, Any]]) -> tuple[str, str]:
    seed = "; ".join(f"{data['documents']}: {data['seed_dose']}" for data in doses)
    caption = (
        "Guard 4, dose response: share of documents hurt by how many prefilled together. "
        f"The first seed's server before its fix (the field's figures): {seed}"
    )
    shares = [data["hurt"] / data["documents"] for data in doses]
    return caption, svg.bars(shares, [f"{data['documents']} documents" for data in doses], [])


def _table(checks: list[Check]) -> str:
    rows = []
    for check in checks:
        css = {True: "passed", False: "failed", None: ""}[check.ok]
        cells = (check.name, check.node, check.kind, check.expected, check.actual, check.detail)
        words = "".join(
            f'<td class="{"word" if at == 2 else ""}">{escape(cell)}</td>'
            for at, cell in enumerate(cells)
        )
        rows.append(f'<tr class="{css}">{words}<td>{check.seconds:.1f}</td></tr>')
    heads = ("guard", "node", "", "expected", "actual", "detail", "s")
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _nodes(nodes: list[NodeReport]) -> str:
    keys = sorted({key for node in nodes for key in {**node.equal, **node.per_node}})
    head = "".join(f"<th>{escape(node.node)} (rank {node.rank})</th>" for node in nodes)
    rows = "".join(
        f"<tr><td>{escape(key)}</td>"
        + "".join(
            f"<td>{escape({**node.equal, **node.per_node}.get(key, ''))}</td>" for node in nodes
        )
        + "</tr>"
        for key in keys
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
