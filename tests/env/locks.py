"""The engine's locks as data, and the record of `env/locks/renew --check`, which runs this file."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "env" / "locks"
RECORD = FOLDER / "checked.json"


def pins(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes by package of a lock; anything that is not `name==version` is an error."""
    found: dict[str, tuple[str, list[str]]] = {}
    last = ""
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        text = line.rstrip("\\").strip()
        if not text or text.startswith("#"):
            continue
        if digest := re.fullmatch(r"--hash=sha256:([0-9a-f]{64})", text):
            found[last][1].append(digest[1])
            continue
        pin = re.fullmatch(r"([a-z0-9][\w.-]*)==([\w.+!-]+)", text)
        assert pin, f"{name}: {line!r} pins no version"
        last = pin[1]
        found[last] = (pin[2], [])
    return found


def sha256(path: Path) -> str:
    """Digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def inputs() -> list[Path]:
    """What the locks follow from, beside the date."""
    return sorted([*FOLDER.glob("*.in"), *FOLDER.glob("*.overrides"), FOLDER / "cut-off"])


def difference(scratch: Path, names: list[str]) -> str:
    """Unified difference of the locks here and the ones resolved anew."""
    return "".join(
        line
        for name in names
        for line in difflib.unified_diff(
            (FOLDER / name).read_text(encoding="utf-8").splitlines(keepends=True),
            (scratch / name).read_text(encoding="utf-8").splitlines(keepends=True),
            name,
            f"{name} resolved anew",
            n=0,
        )
    )


def fetched(cache: Path, folders: list[Path]) -> dict[str, Any]:
    """What the resolution has put into its cache, which was empty before.

    uv unpacks a wheel into archive-v*, also one that lies in a folder of this machine (PyTorch's
    CPU build, the alias): that one is no download.
    """
    unpacked = {
        path.name.removesuffix(".dist-info") for path in cache.glob("archive-v*/*/*.dist-info")
    }
    here = {"-".join(path.name.split("-")[:2]) for one in folders for path in one.glob("*.whl")}
    metadata = (
        path.stat().st_size
        for path in cache.rglob("*")
        if path.is_file() and not path.relative_to(cache).parts[0].startswith("archive-")
    )
    return {
        "wheels": sorted(unpacked - here) + sorted(path.name for path in cache.rglob("*.whl")),
        "metadata_bytes": sum(metadata),
    }


def main(cut_off: str, scratch: Path, cache: Path, names: list[str]) -> int:
    """Hold the new locks against those here; write the record when nothing differs."""
    said = difference(scratch, names)
    folders = [Path(one) for one in os.environ["UV_FIND_LINKS"].split(",") if Path(one).is_dir()]
    took = fetched(cache, folders)
    if said or took["wheels"]:
        print(said, end="")
        print(f"renew: the locks differ: {bool(said)}; wheels fetched: {took['wheels']}")
        return 1
    uv = subprocess.run(
        [Path(sys.executable).with_name("uv"), "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    record: dict[str, Any] = {
        "command": "env/locks/renew --check",
        "date": datetime.now(UTC).strftime("%FT%TZ"),
        "uv": uv.stdout.split()[1],
        "cut_off": cut_off,
        "difference": said,
        "fetched": took,
        "inputs": {path.name: sha256(path) for path in inputs()},
        "locks": {
            name: {"sha256": sha256(FOLDER / name), "packages": len(pins(name))} for name in names
        },
    }
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"renew: as resolved at {cut_off}, byte for byte: {', '.join(names)}")
    print(f"renew: no wheel fetched, {took['metadata_bytes'] / 1e6:.0f} MB of metadata")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
