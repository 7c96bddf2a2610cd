"""Env files that our reader accepts, with what they say: for readers that are asked once.

`python tests/env/corpus.py FOLDER [COUNT]` writes `000.env`, ... and `expected.json`; the same
files every time.
"""

from __future__ import annotations

import json
import random
import string
import sys
from pathlib import Path

from twinspark.variant.dotenv import quote

BARE = string.ascii_letters + string.digits + "_./:,@%+=-"
QUOTED = BARE + ' "#;&|<>()[]{}*?!~^`' + "äß€日本語🚀"
COMMENTS = ("# a comment", "#", "#KEY=value", '# it\'s "quoted" $HOME `x`', "#\ttabbed")
BLANKS = ("", " ", "\t", "  \t")

# Shapes that readers are known to differ on outside the grammar, here inside it.
CORNERS = (
    "", "=", "==", "=a", "-", "--flag", "%h", "a=b", "0", "true", "#no comment", " leading",
    "trailing ", "a  b", '"', '""', '"double"', "a#b", "a #b", ";", "export A=1", "~", "~root",
    "*", "{a,b}", "!!", "`date`", "é",
)  # fmt: skip


def generate(count: int, seed: int = 271) -> list[tuple[str, dict[str, str]]]:
    """Texts and what they say; the first holds every corner."""
    choose = random.Random(seed)  # noqa: S311  the same files every time
    corners = {f"CORNER_{number}": value for number, value in enumerate(CORNERS)}
    files = [_file(choose, corners)]
    while len(files) < count:
        files.append(_file(choose, _pairs(choose)))
    return files


def _pairs(choose: random.Random) -> dict[str, str]:
    return {_key(choose): _value(choose) for _ in range(choose.randrange(1, 15))}


def _key(choose: random.Random) -> str:
    rest = choose.choices(string.ascii_uppercase + string.digits + "_", k=choose.randrange(12))
    return f"{choose.choice(string.ascii_uppercase)}X_{''.join(rest)}"


def _value(choose: random.Random) -> str:
    return "".join(choose.choices(choose.choice((BARE, QUOTED)), k=choose.randrange(40)))


def _file(choose: random.Random, pairs: dict[str, str]) -> tuple[str, dict[str, str]]:
    lines = []
    for key, value in pairs.items():
        if choose.random() < 0.3:
            lines.append(choose.choice(COMMENTS + BLANKS))
        bare = quote(value)
        quoted = f"'{value}'"
        lines.append(f"{key}={choose.choice((bare, quoted))}")
    return "\n".join(lines) + choose.choice(("\n", "", "\n\n")), pairs


def write(folder: Path, count: int = 100) -> None:
    """Write the corpus and what each file says."""
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for number, (text, pairs) in enumerate(generate(count)):
        name = f"{number:03}.env"
        (folder / name).write_text(text, encoding="utf-8")
        expected[name] = pairs
    (folder / "expected.json").write_text(json.dumps(expected, indent=1), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), *(int(count) for count in sys.argv[2:3]))
