"""The pictures of a report as inline SVG: no script, no network, colours from the page's CSS."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 640
LEFT: Final = 120  # room for row labels
CLASS_OF: Final = {".": "good", "x": "bad", "s": "soft", "t": "cut"}
WORD_OF: Final = {".": "right", "x": "wrong", "s": "soft", "t": "truncated"}


@dataclass(slots=True)
class Canvas:
    """Collects shapes; `done` wraps them.

    Attributes:
        height: Pixels.
        label: What a screen reader says.
        width: Pixels.
        parts: Shapes so far.
    """

    height: float
    label: str
    width: float = WIDTH
    parts: list[str] = field(default_factory=list)

    def rect(self, box: tuple[float, float, float, float], css: str, title: str) -> None:
        """A box (x, y, width, height) with a tooltip."""
        names = ("x", "y", "width", "height")
        size = " ".join(f'{name}="{at:.1f}"' for name, at in zip(names, box, strict=True))
        self.parts.append(f'<rect {size} class="{css}"><title>{escape(title)}</title></rect>')

    def dot(self, x: float, y: float, css: str, title: str = "") -> None:
        """A point with a tooltip."""
        tip = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" class="{css}">{tip}</circle>')

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """A rule."""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"/>'
        )

    def text(self, x: float, y: float, words: str, anchor: str = "start") -> None:
        """A label."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def done(self) -> str:
        """The picture."""
        size = f'viewBox="0 0 {self.width:.0f} {self.height:.0f}"'
        label = escape(self.label, quote=True)
        return f'<svg {size} role="img" aria-label="{label}">{"".join(self.parts)}</svg>'


def block_map(rows: list[str], stretch: int) -> str:
    """One row a document, one cell a block that was read back.

    Args:
        rows: A symbol a block: `.` right, `x` wrong, `s` soft, `t` truncated.
        stretch: Tokens a cell.
    """
    columns = max(map(len, rows), default=1)
    cell = min((WIDTH - LEFT) / columns, 14.0)
    tall = max(cell, 10.0)
    damaged = sum(len(row) - row.count(".") for row in rows)
    canvas = Canvas(len(rows) * tall + 22, f"block map, {damaged} damaged blocks")
    for index, row in enumerate(rows):
        canvas.text(0, index * tall + tall - 1.5, f"document {index}")
        for at, symbol in enumerate(row):
            where = f"document {index}, tokens {at * stretch} to {(at + 1) * stretch - 1}"
            box = (LEFT + at * cell, index * tall + 1, cell - 1, tall - 2)
            word = WORD_OF.get(symbol, symbol)
            canvas.rect(box, CLASS_OF.get(symbol, "soft"), f"{where}: {word}")
    canvas.text(LEFT, len(rows) * tall + 16, f"one cell = {stretch} tokens, left = beginning")
    return canvas.done()


def arms(logprobs: dict[str, list[float | None]]) -> str:
    """A row an arm, a dot an answer, by nats below certainty on a logarithmic scale.

    Args:
        logprobs: Of each arm's answers; None (NaN, once it has been through a file) is left out.
    """
    low, high = -4.0, 1.0  # 1e-4 to 10 nats
    canvas = Canvas(len(logprobs) * 30 + 40, "logprob of the answer in each arm")

    def x(logprob: float) -> float:
        value = min(max(math.log10(max(-logprob, 1e-9)), low), high)
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - 20)

    floor = len(logprobs) * 30 + 6
    for power in range(int(low), int(high) + 1):
        at = x(-(10.0**power))
        canvas.line(at, 0, at, floor, "rule")
        canvas.text(at, floor + 16, f"{10.0**power:g}", "middle")
    canvas.text(0, floor + 16, "nats lost")
    # the first seed's soft answer to the same question, alone on an aged server: the field's figure
    canvas.line(x(-0.74), 0, x(-0.74), floor, "yardstick")
    for row, (name, values) in enumerate(logprobs.items()):
        canvas.text(0, row * 30 + 20, name)
        for value in values:
            if value is None or math.isnan(value):
                continue
            canvas.dot(x(value), row * 30 + 16, "good" if value > -0.1 else "bad", f"{value:.3g}")
    return canvas.done()


def ladder(rungs: list[tuple[int, list[str]]]) -> str:
    """A column a rung, a dot a needle."""
    canvas = Canvas(120, "needle ladder")
    step = (WIDTH - LEFT) / max(len(rungs), 1)
    for index, (tokens, marks) in enumerate(rungs):
        at = LEFT + step * (index + 0.5)
        for row, mark in enumerate(marks):
            css = {"pass": "good", "soft": "soft", "truncated": "cut"}.get(mark, "bad")
            canvas.dot(at, 80 - row * 26, css, f"needle {row}: {mark}")
        canvas.text(at, 112, f"{tokens:,}", "middle")
    canvas.text(0, 112, "tokens")
    return canvas.done()


def bars(values: Sequence[float | None], names: list[str], yardsticks: list[float]) -> str:
    """Shares between 0 and 1 as bars, with yardsticks across; None and NaN are left out."""
    canvas = Canvas(170, "shares")
    step = (WIDTH - LEFT) / max(len(values), 1)
    wide = min(step * 0.6, 60.0)

    def y(value: float) -> float:
        return 140 - 130 * min(max(value, 0.0), 1.0)

    for mark in (0.0, 0.5, 1.0):
        canvas.line(LEFT, y(mark), WIDTH, y(mark), "rule")
        canvas.text(LEFT - 8, y(mark) + 4, f"{mark:g}", "end")
    for index, (value, name) in enumerate(zip(values, names, strict=True)):
        if value is None or math.isnan(value):
            continue
        middle = LEFT + step * (index + 0.5)
        box = (middle - wide / 2, y(value), wide, 140 - y(value))
        canvas.rect(box, "bar", f"{name}: {value:.2f}")
        canvas.text(middle, y(value) - 4, f"{value:.2f}", "middle")
        canvas.text(middle, 158, name, "middle")
    for mark in yardsticks:
        canvas.line(LEFT, y(mark), WIDTH, y(mark), "yardstick")
        canvas.text(WIDTH, y(mark) - 3, f"{mark:g}", "end")
    return canvas.done()
