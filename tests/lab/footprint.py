"""What a node is made of, before and after: files, units, users, packages, links.

    python tests/lab/footprint.py take FOLDER      one JSON file a node of the running lab
    python tests/lab/footprint.py compare FOLDER   1, and a line for each difference since then

Packages stay after an uninstall, by decision (docs/decisions.md): they are named, and what came
with them is no difference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lab.nodes import NAMES, Lab

if TYPE_CHECKING:
    from lab.nodes import Node

PROBE: Final = Path(__file__).with_name("footprint_probe.py")
# told by name -> what it is; `packaged` only explains files
PARTS: Final = (
    "files", "units", "running", "users", "groups", "packages", "selections", "links",
)  # fmt: skip

Footprint = dict[str, Any]


def take(node: Node) -> Footprint:
    """Look at a node as root."""
    said = node.run("python3", "-", stdin=PROBE.read_text(encoding="utf-8")).stdout
    taken: Footprint = json.loads(said)
    return taken


def came(before: Footprint, after: Footprint) -> list[str]:
    """The packages that are new."""
    return sorted(set(after["packages"]) - set(before["packages"]))


def differences(before: Footprint, after: Footprint) -> list[str]:
    """A line for each thing that is new, gone or other, apart from what new packages brought.

    Args:
        before: As `take` gave it.
        after: Likewise.
    """
    packages = set(came(before, after))
    brought = set(after["packaged"]) - set(before["packaged"])
    lines = []
    for part in PARTS:
        was, now = before[part], after[part]
        for name in sorted(was.keys() | now.keys()):
            of_package = part in {"packages", "selections"} and name.split(":")[0] in packages
            of_package |= part == "files" and name in brought
            if was.get(name) != now.get(name) and not of_package:
                said = f"{was.get(name, 'absent')} -> {now.get(name, 'absent')}"
                lines.append(f"{part}: {name}: {said}")
    return lines


def main(words: list[str]) -> int:
    """Take or compare; 1 when something differs."""
    command, folder = words[0], Path(words[1])
    lab, wrong = Lab(), 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        path = folder / f"{name}.json"
        footprint = take(lab.node(name))
        if command == "take":
            path.write_text(json.dumps(footprint), encoding="utf-8")
            print(f"{name}: {len(footprint['files'])} files")
            continue
        before = json.loads(path.read_text(encoding="utf-8"))
        lines = differences(before, footprint)
        print(f"{name}: {len(footprint['files'])} files, {len(lines)} differences since then")
        print(f"{name}: packages that stay: {' '.join(came(before, footprint)) or 'none'}")
        for line in lines:
            print(f"  {line}")
        wrong += len(lines)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
