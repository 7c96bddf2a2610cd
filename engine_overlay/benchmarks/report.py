"""Tables and plots of a committed benchmark report; standard library only, so the plots are SVG.

To repeat: python3 engine_overlay/benchmarks/report.py --write
"""
# ruff: noqa: INP001 - scripts, not a package

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).parent))

from shapes import OPS, of

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
REPORT = HERE / "results" / "h200.json"
FUSED = HERE / "results" / "h200-fused-topk.json"
DOCUMENT = HERE.parent.parent / "docs" / "kernels.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
COLOURS = {"ours": "#2b6cb0", "deepgemm": "#c05621", "other": "#a0aec0"}
Row = dict[str, Any]


def cases(report: dict[str, Any]) -> dict[tuple[str, str], list[Row]]:
    """Rows of each case that were timed, fastest first."""
    table: dict[tuple[str, str], list[Row]] = {}
    for row in report["rows"]:
        if "error" not in row:
            table.setdefault((row["op"], row["shape"]), []).append(row)
    return {key: sorted(rows, key=lambda row: row["median_us"]) for key, rows in table.items()}


def best(rows: list[Row], kind: str, name: str = "") -> Row | None:
    """The fastest chosen kernel (`kernel`), or the fastest anchor whose name starts so."""
    for row in rows:
        if row["kind"] != kind or not row["who"].startswith(name):
            continue
        if kind == "anchor" or row.get("chosen"):
            return row
    return None


def others(rows: list[Row]) -> Row | None:
    """The fastest anchor that is not DeepGEMM."""
    left = [row for row in rows if not row["who"].startswith("deepgemm")]
    return best(left, "anchor")


def faults(report: dict[str, Any], ops: Sequence[str] = OPS) -> list[str]:
    """Why a report is no result: what went wrong, and what is missing, of some operations.

    Every gate must be green, no anchor and no chosen kernel may have failed, and each operation
    needs a gate, each of its cases a timed chosen kernel.
    """
    found = [f"ERROR {name} {text[-1500:]}" for name, text in report.get("errors", {}).items()]
    gates = report.get("gates", [])
    for row in (row for row in gates if "error" in row):
        text = row["error"][:300].replace("\n", " ")
        found.append(f"RED {row['op']} {row['config']} {text}")
    found += [
        f"FAILED {row['op']} {row['shape']} {row['who']}: {row['error'][:160]}"
        for row in report["rows"]
        if "error" in row and (row["kind"] == "anchor" or row.get("chosen"))
    ]
    gated = {row["op"] for row in gates}
    found += [f"MISSING {op}: no gate was run" for op in ops if op not in gated]
    timed = cases(report)
    found += [
        f"MISSING {op} {shape.name}: no time of the chosen kernel"
        for op in ops
        for shape in of(op)
        if best(timed.get((op, shape.name), []), "kernel") is None
    ]
    return found


def _time(row: Row | None) -> str:
    return f"{row['median_us']:,.2f} ({row['p10_us']:,.2f}-{row['p90_us']:,.2f})" if row else ""


def table(report: dict[str, Any]) -> str:
    """The Markdown table of all cases."""
    lines = [
        "| op | case | ours, us (10-90%) | TFLOP/s | GB/s | floor | DeepGEMM | ours is | other |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (op, shape), rows in cases(report).items():
        ours = best(rows, "kernel")
        if ours is None:
            continue
        theirs, other = best(rows, "anchor", "deepgemm"), others(rows)
        anchor = theirs or other
        ratio = f"{anchor['median_us'] / ours['median_us']:.2f}x" if anchor else ""
        named = f"{other['who']} {other['median_us']:,.2f}" if other else ""
        lines.append(
            f"| {op} | {shape} | {_time(ours)} | {ours['tflops'] or ''} | {ours['gbps']:,.0f} "
            f"| {ours['floor_us']:,.2f} | {_time(theirs)} | {ratio} | {named} |"
        )
    return "\n".join(lines)


def plot(report: dict[str, Any], op: str) -> str:
    """One bar chart: how much of the floor's speed each case reaches, ours beside the anchors."""
    bars: list[tuple[str, str, Row]] = []
    for (name, shape), rows in cases(report).items():
        if name != op:
            continue
        picks = {
            "ours": best(rows, "kernel"),
            "deepgemm": best(rows, "anchor", "deepgemm"),
            "other": others(rows),
        }
        bars += [(shape, who, row) for who, row in picks.items() if row]
    height, left, width = 18, 250, 420
    parts = [_text(8, 20, f"{op}: speed as a share of the floor's (100%)", 14)]
    y, before = 40, ""
    for shape, who, row in bars:
        if shape != before:
            y += 8
            parts.append(_text(8, y + 13, shape, 12))
            before = shape
        share = min(row["of_floor"], 1.2)
        colour = COLOURS[who]
        parts.append(
            f'<rect x="{left}" y="{y}" width="{share * width:.1f}" height="{height - 4}" '
            f'fill="{colour}"/>'
        )
        name = row["who"] if who != "ours" else "ours"
        said = f"{row['of_floor']:.1%}  {name}  {row['median_us']:,.2f} us"
        parts.append(_text(int(left + share * width) + 6, y + 12, said, 11))
        y += height
    line = left + width
    parts.append(f'<line x1="{line}" y1="34" x2="{line}" y2="{y}" stroke="#e53e3e"/>')
    made = report["provenance"]
    label = f"emulated: {made['device']} ({made['capability']}), Triton {made['triton']}"
    parts.append(_text(8, y + 24, f"{label}, {made['date']}", 11))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="960" height="{y + 36}" '
        f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f"{body}\n</svg>\n"
    )


def _text(x: int, y: int, text: str, size: int) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}">{escape(text)}</text>'


def document(text: str, report: dict[str, Any]) -> str:
    """The document with its table renewed."""
    return between(text, BEGIN, END, table(report))


def between(text: str, begin: str, end: str, body: str) -> str:
    """The text with `body` on lines of its own between two markers.

    Raises:
        ValueError: Either marker is not there once, in this order.
    """
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    if text.count(begin) != 1 or rest.count(end) != 1:
        raise ValueError(f"{DOCUMENT.name} must hold {begin} and then {end}, once each")
    return f"{head}{begin}\n{body}\n{end}{tail}"


def fused(found: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
    """The fused top-k's results as a report: against the floor of the logits alone.

    Args:
        found: What `fused_topk.py` wrote; of it what ends in a top-k, at the registered shapes.
        report: The sweep on the same kind of card, for the floors.
    """
    floors = {row["shape"]: row["floor_us"] for row in report["rows"] if row["op"] == "mqa_logits"}
    rows = []
    for row in found["rows"]:
        ours = row["who"].startswith("fused")
        if "error" in row or row["case"] not in floors or not (ours or "top_k" in row["who"]):
            continue
        rows.append({
            "op": "mqa_topk", "shape": row["case"], "who": row["who"], "chosen": ours,
            "kind": "kernel" if ours else "anchor", "median_us": row["us"],
            "of_floor": round(floors[row["case"]] / row["us"], 4),
        })  # fmt: skip
    return {"provenance": found["provenance"], "rows": rows}


def write(report: dict[str, Any]) -> None:
    """Renew the document's table and a plot for each operation.

    Raises:
        ValueError: The report is no result, or the document has no place for it: nothing is
            written then.
    """
    if wrong := faults(report):
        raise ValueError("\n".join([f"{REPORT} is not shown:", *wrong]))
    text = document(DOCUMENT.read_text(encoding="utf-8"), report)
    DOCUMENT.write_text(text, encoding="utf-8")
    for op in dict.fromkeys(key[0] for key in cases(report)):
        REPORT.with_name(f"{op}.svg").write_text(plot(report, op), encoding="utf-8")
    topk = plot(fused(json.loads(FUSED.read_text(encoding="utf-8")), report), "mqa_topk")
    REPORT.with_name("mqa_topk.svg").write_text(topk, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, or write the document's table and a plot for each operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(argv)
    try:
        report = json.loads(REPORT.read_text(encoding="utf-8"))
        if args.write:
            write(report)
        else:
            print(table(report))
    except FileNotFoundError as error:
        made = (
            "fused_topk.py makes it"
            if error.filename == str(FUSED)
            else ("copy report.json of run.py there")
        )
        print(f"{error.filename} is missing: {made}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
