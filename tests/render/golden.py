"""The golden renders: every variant for every host of its inventory.

Regenerate with `.venv/bin/python tests/render/golden.py` and review the diff.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from twinspark.variant import load, render
from twinspark.variant.inventory import read_inventory

REPOSITORY = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("golden")

# The Sparks' variants on the example pair, the lab's on the lab.
INVENTORIES = {"inventory.yml": "flash-*.env", "lab.yml": "lab-*.env"}


def renders() -> dict[str, str]:
    """Text by path below `golden/`: `<inventory>/<host>/<variant>/<file>`."""
    texts = {}
    for inventory, pattern in INVENTORIES.items():
        nodes = read_inventory(REPOSITORY / "env" / inventory)
        for path in sorted((REPOSITORY / "env").glob(pattern)):
            variant = load(path)
            for host in nodes.values():
                for name, text in render(variant, host).files().items():
                    where = f"{inventory.removesuffix('.yml')}/{host.name}/{variant.name}/{name}"
                    texts[where] = text
    return texts


def main() -> None:
    """Write them all anew."""
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for where, text in renders().items():
        path = GOLDEN / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
