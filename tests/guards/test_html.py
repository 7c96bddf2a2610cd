"""The page: what it shows, that it is self-contained, and how a real browser paints it."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from twinspark.guards import html, report
from twinspark.guards.model import Check, Fingerprint, NodeReport, Report, verdict

if TYPE_CHECKING:
    from pathlib import Path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
BAD, GOOD, BAR = (0xC0, 0x39, 0x2B), (0x2E, 0x7D, 0x4F), (0x3B, 0x6E, 0xA5)


def readback(documents: int, rows: list[str]) -> Check:
    bad = [
        [document, at, "?", -3.0]
        for document, row in enumerate(rows)
        for at, symbol in enumerate(row)
        if symbol != "."
    ]
    data = {
        "documents": documents, "tokens": 1344, "stretch": 32, "map": rows, "bad": bad,
        "hurt": len({one[0] for one in bad}), "seed_dose": "6 of 7", "cached_tokens": 9,
    }  # fmt: skip
    return verdict(f"blocks.{documents}.readback", "spark1", not bad, "a", "b", data=data)


def made(damaged: bool) -> Report:
    row = "." * 42
    spoiled = ".x.s" + "." * 38
    rows = [row, spoiled, *[row] * 5, spoiled] if damaged else [row] * 8
    lost = [-0.74, -1.49] if damaged else [-5.6e-4, -5.7e-4]
    checks = [
        readback(4, rows[:4]),
        readback(8, rows),
        verdict("neighbours.alone", "spark1", not damaged, "", "", data={"logprobs": lost}),
        verdict("neighbours.prefilling", "spark1", True, "", "", data={"logprobs": [-5.6e-4]}),
        verdict(
            "ladder.2048", "spark1", True, "", "", data={"tokens": 2048, "marks": ["pass"] * 3}
        ),
        verdict("acceptance", "spark1", True, "", "", data={"drafts": 210, "rates": [0.74, 0.5]}),
        verdict("<script>alert(1)</script>", "spark1", True, "<b>", "&", "</table>"),
    ]
    print_ = Fingerprint("0.27.1", "0.1.0", "13.3", "590", "6.14")
    node = NodeReport(
        "spark1", 0, 1.8e9, "emulated", "quick", 1, print_, {"nnodes": "1"}, {}, checks
    )
    return Report([node])


def test_page__is_self_contained_and_escaped() -> None:
    text = html.page(made(damaged=True))
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="|url\(|@import', text)
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(("damaged", "word"), [(True, "failed"), (False, "passed")])
def test_page__gives_the_verdict_and_all_pictures(damaged: bool, word: str) -> None:
    text = html.page(made(damaged))
    assert f"twinspark guards: {word}" in text
    assert text.count("<svg") == 6  # two maps, dose, arms, ladder, acceptance
    assert text.count('class="bad"') == (5 if damaged else 0)  # 1 + 2 blocks, 2 answers
    assert "6 of 7" in text
    assert (
        "on Spark" not in text
    )  # the report's own label is "emulated"; yardsticks are the field's


def test_page__survives_a_report_that_went_through_a_file(tmp_path: Path) -> None:
    before = made(damaged=True)
    arm = verdict("neighbours.decoding", "n", False, "", "", data={"logprobs": [float("nan")]})
    data = {"drafts": 210, "rates": [float("nan"), 0.5]}
    rates = verdict("acceptance", "n", False, "", "", data=data)
    before = Report([replace(before.nodes[0], checks=[*before.nodes[0].checks, arm, rates])])
    html.page(before)
    report.write(before, tmp_path / "r.json")
    assert "<svg" in html.page(report.read(tmp_path / "r.json"))


def pixels(png: bytes) -> dict[tuple[int, int, int], int]:
    """Counts of the colours of an 8-bit RGB(A) PNG."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8
    size, at, packed = {2: 3, 6: 4}[kind], 8, b""
    while at < len(png):
        (length,), name = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        packed += png[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += length + 12
    raw, stride = zlib.decompress(packed), width * size
    above, counts = bytearray(stride), {}
    for y in range(height):
        start = y * (stride + 1)
        row = unfilter(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), above, size)
        for x in range(0, stride, size):
            colour = (row[x], row[x + 1], row[x + 2])
            counts[colour] = counts.get(colour, 0) + 1
        above = row
    return counts


def unfilter(method: int, row: bytearray, above: bytearray, size: int) -> bytearray:
    for i in range(len(row)):
        left = row[i - size] if i >= size else 0
        up, corner = above[i], above[i - size] if i >= size else 0
        if method == 1:
            row[i] = (row[i] + left) & 255
        elif method == 2:
            row[i] = (row[i] + up) & 255
        elif method == 3:
            row[i] = (row[i] + (left + up) // 2) & 255
        elif method == 4:
            near = min((left, up, corner), key=lambda v, p=left + up - corner: abs(p - v))
            row[i] = (row[i] + near) & 255
    return row


def screenshot(page: str, folder: Path) -> bytes:
    assert BROWSER is not None
    (folder / "page.html").write_text(page)
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    subprocess.run(
        [BROWSER, "--headless", *sandbox, "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={folder / 'profile'}", "--window-size=720,1500",
         "--force-device-scale-factor=1", f"--screenshot={folder / 'shot.png'}",
         f"file://{folder / 'page.html'}"],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return (folder / "shot.png").read_bytes()


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
def test_page__paints_damage_in_a_real_browser(tmp_path: Path) -> None:
    counts = {}
    for damaged in (True, False):
        folder = tmp_path / str(damaged)
        folder.mkdir()
        counts[damaged] = pixels(screenshot(html.page(made(damaged)), folder))
    cell = 11 * 10  # a cell of the map in pixels, without its rounded edges
    assert counts[True].get(BAD, 0) >= 3 * cell
    assert counts[False].get(BAD, 0) == 0
    for colours in counts.values():
        assert colours.get(GOOD, 0) > 300 * cell
        assert colours.get(BAR, 0) > 1000
