"""False-alarm rates of the detectors over folders of healthy text.

    PYTHONPATH=tests python -m guards.measure_detectors --name "manual pages, Russian" \\
        --expect LATIN,CYRILLIC [--out tests/guards/results/detectors.json] FOLDER...

Each file is cut into pieces of 2,000 characters, a fixed sample is drawn, and every alarm is
printed, so that a person can tell a false one from a text that really holds the pattern. Manual
pages are read without their macros. `--out` replaces the entry of that name.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import time
from collections import Counter
from pathlib import Path

from guards.clean_runs import bound
from twinspark.guards.detectors import DETECTORS, examine

PIECE, SAMPLE = 2000, 2000
ENDINGS = {".py", ".md", ".rst", ".txt", ".html", ".c", ".h", ".js", ".css", ".yml", ".tex"}
_ESCAPE = re.compile(r"\\f[A-Z]|\\f\[\w*\]|\\[&%|^]|\\s[-+]?\d")
_NAMED = {r"\-": "-", r"\(co": "(c)", r"\e": "\\", r"\(bu": "*", r"\(em": "-", r"\(aq": "'"}


def manual(raw: str) -> str:
    """A manual page's text: requests and comments dropped, font changes taken out."""
    kept = [line for line in raw.splitlines() if not line.startswith((".", "'"))]
    text = _ESCAPE.sub("", "\n".join(kept))
    for escape, plain in _NAMED.items():
        text = text.replace(escape, plain)
    return text


def text_of(path: Path) -> str:
    """A file's text; empty where it is none that is measured."""
    if path.suffix == ".gz" and path.parent.name.startswith("man"):
        return manual(gzip.decompress(path.read_bytes()).decode(errors="ignore"))
    if path.suffix in ENDINGS and path.stat().st_size < 400_000:
        return path.read_text(encoding="utf-8", errors="ignore")
    return ""


def pieces(folders: list[Path]) -> list[tuple[str, str]]:
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            text = text_of(path) if path.is_file() and not path.is_symlink() else ""
            found += [
                (f"{path.relative_to(folder)}:{at}", text[at : at + PIECE])
                for at in range(0, len(text) - PIECE // 2, PIECE)
            ]
    return found


def keep(path: Path, entry: dict[str, object]) -> None:
    """Put one corpus into the record."""
    known = json.loads(path.read_text())["corpora"] if path.exists() else []
    others = [one for one in known if one["name"] != entry["name"]]
    body = {"schema": "twinspark.detectors/1", "corpora": [*others, entry]}
    path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--name", required=True)
    parser.add_argument("--expect", default="LATIN", help="scripts that belong there, A,B")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    expected = frozenset(options.expect.split(","))
    everything = pieces(options.folders)
    drawn = random.Random(1).sample(everything, min(SAMPLE, len(everything)))  # noqa: S311
    alarms = Counter(dict.fromkeys(DETECTORS, 0))
    seen = []
    for where, text in drawn:
        for alarm in examine(text, expected):
            alarms[alarm.detector] += 1
            seen.append(f"{alarm.detector}: {where}: {alarm.evidence}")
    print(*seen, f"{len(drawn)} of {len(everything)} pieces; alarms: {dict(alarms)}", sep="\n")
    if options.out and drawn:
        entry = {
            "name": options.name, "expected": sorted(expected), "date": time.strftime("%F"),
            "pieces": len(drawn), "drawn_from": len(everything), "alarms": dict(alarms),
            "rate_at_most": round(bound(len(seen), len(drawn)), 4), "evidence": seen,
        }  # fmt: skip
        keep(options.out, entry)


if __name__ == "__main__":
    main()
