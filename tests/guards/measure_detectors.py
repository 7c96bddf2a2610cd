"""False-alarm rates of the detectors over any folder of text: `measure_detectors.py FOLDER...`.

Each file is cut into pieces of 2,000 characters, a fixed sample is drawn, and every alarm is
printed, so that a person can tell a false one from a text that really holds the pattern.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

from twinspark.guards.detectors import LATIN, examine

PIECE, SAMPLE = 2000, 2000
ENDINGS = {".py", ".md", ".rst", ".txt", ".html", ".c", ".h", ".js", ".css", ".yml", ".tex"}


def pieces(folders: list[str]) -> list[tuple[str, str]]:
    found = []
    for folder in folders:
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix in ENDINGS and path.is_file() and path.stat().st_size < 400_000:
                text = path.read_text(encoding="utf-8", errors="ignore")
                found += [
                    (f"{path}:{at}", text[at : at + PIECE])
                    for at in range(0, len(text) - PIECE // 2, PIECE)
                ]
    return found


def main() -> None:
    everything = pieces(sys.argv[1:])
    drawn = random.Random(1).sample(everything, min(SAMPLE, len(everything)))  # noqa: S311
    alarms: Counter[str] = Counter()
    for where, text in drawn:
        for alarm in examine(text, LATIN):
            alarms[alarm.detector] += 1
            print(f"{alarm.detector}: {where}: {alarm.evidence}")
    print(f"{len(drawn)} of {len(everything)} pieces; alarms: {dict(alarms)}")


if __name__ == "__main__":
    main()
