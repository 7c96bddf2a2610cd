"""`twinspark overlay`: what the patches are, what each process holds, what has expired."""

from __future__ import annotations

import json
import sys
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinspark import documents, expiry, patches, sources
from twinspark.patches import pins

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

DEFAULT_REPORTS = "/run/twinspark/overlay"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="every patch, with layer and targets")
    show = actions.add_parser("show", help="what the processes reported")
    show.add_argument("directory", nargs="?", type=Path, default=Path(DEFAULT_REPORTS))
    verify = actions.add_parser("verify", help="compare the pins with an unpacked wheel")
    verify.add_argument("--wheel", type=Path, required=True, help="folder that holds `vllm/`")
    expired = actions.add_parser("expired", help="what a later wheel has repaired itself")
    expired.add_argument("--wheel", type=Path, required=True, help="wheel file or its folder")
    expired.add_argument("--json", type=Path, help="write the verdicts here as well")
    docs = actions.add_parser("docs", help="write docs/findings.md from the records")
    docs.add_argument("--output", type=Path, default=Path("docs/findings.md"))
    pin = actions.add_parser("pin", help="write the pins anew (after reading what changed)")
    pin.add_argument("--wheel", type=Path, required=True, help="folder that holds `vllm/`")


def run(args: argparse.Namespace) -> int:
    """Run one action; 0 as wished, 1 checked and wrong, 2 could not run."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": lambda _: list_patches(),
        "show": lambda options: show(options.directory),
        "verify": lambda options: verify(options.wheel),
        "expired": lambda options: expired(options.wheel, options.json),
        "docs": lambda options: write_docs(options.output),
        "pin": lambda options: write_pins(options.wheel),
    }
    try:
        return actions[args.action](args)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"twinspark overlay: {_sentence(error, args)}\n")
        return 2


def _sentence(error: Exception, args: argparse.Namespace) -> str:
    """What could not be done, with the path and without Python's own words for it."""
    given = (getattr(args, name, None) for name in ("directory", "wheel", "output"))
    place = next((str(value) for value in given if value), "the patches' pins")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or place} cannot be read or written: {error.strerror}"
    if isinstance(error, zipfile.BadZipFile):
        return f"{place} is not a wheel: it is no zip file"
    if isinstance(error, (KeyError, TypeError, AttributeError)):
        return f"{place} holds a file that is not what the overlay writes"
    return f"{place} cannot be read: {error}"


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def list_patches() -> int:
    """Print every patch."""
    rows = [("patch", "layer", "replaces", "title")]
    for patch in patches.load():
        first, *more = patch.targets or ("nothing",)
        rest = f" (+{len(more)})" if more else ""
        rows.append((patch.id, patch.layer, first + rest, patch.title))
    _table(rows)
    return 0


def read_reports(directory: Path) -> list[dict[str, Any]]:
    """Reports of a folder, oldest first."""
    found = []
    for path in directory.glob("*.json"):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path.name} is not JSON: {error}") from error
    return sorted(found, key=lambda document: float(document["time"]))


def show(directory: Path) -> int:
    """Print what each process reported; 1 when one failed or the sets differ."""
    reports = read_reports(directory) if directory.is_dir() else []
    if not reports:
        print(f"no overlay report in {directory}: is TWINSPARK_REPORT_DIR set for the engine?")
        return 2
    rows = [("process", "pid", "vllm", "patch", "state", "reason")]
    sets = set()
    for document in reports:
        name = document["role"] + (f" {document['rank']}" if document["rank"] is not None else "")
        held = []
        for patch in document["patches"]:
            rows.append(
                (name, str(document["pid"]), document["vllm"], patch["id"], patch["state"],
                 patch["reason"])
            )  # fmt: skip
            held.append((patch["id"], "in" if patch["state"] in {"applied", "armed"} else "out"))
        sets.add(tuple(sorted(held)))
        rows.extend(
            (name, str(document["pid"]), "", kernel["op"], kernel["kernel"], kernel["reason"])
            for kernel in document["kernels"]
        )
    _table(rows)
    failed = any(row[4] == "failed" for row in rows)
    if len(sets) > 1:
        print("the processes do not hold the same set of patches")
    return 1 if failed or len(sets) > 1 else 0


def _holds_vllm(wheel: Path, *, packed: bool = False) -> bool:
    """Whether there is something to compare with; says so otherwise."""
    if packed and wheel.is_file():
        with zipfile.ZipFile(wheel) as archive:
            held = any(name.startswith("vllm/") for name in archive.namelist())
    else:
        held = (wheel / "vllm").is_dir()
    if not held:
        way = "a wheel of vLLM, or its folder" if packed else "the folder of an unpacked wheel"
        print(f"{wheel} holds no `vllm/`: give {way}")
    return held


def verify(wheel: Path) -> int:
    """Print every pinned source that a wheel does not have; 1 when there is one."""
    if not _holds_vllm(wheel):
        return 2
    wrong = 0
    for patch in patches.load():
        for target, expected in patch.upstream_sha256.items():
            found = sources.digest_in(wheel, target)
            if found != expected:
                wrong += 1
                print(f"{patch.id}: {target} is {found or 'missing'}, pinned {expected or 'none'}")
    return 1 if wrong else 0


def write_pins(wheel: Path) -> int:
    """Write the digests of every source that the patches name; 2 when one is missing."""
    if not _holds_vllm(wheel):
        return 2
    found = {
        target: sources.digest_in(wheel, target)
        for patch in patches.load()
        for target in patch.upstream_sha256
    }
    missing = [target for target, digest in found.items() if digest is None]
    if missing:
        print("not in this wheel: " + ", ".join(missing))
        return 2
    pins.FILE.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", encoding="utf-8")
    return 0


def expired(wheel: Path, output: Path | None) -> int:
    """Print what a wheel says about every patch; 1 when one has expired, 2 without a wheel."""
    if not wheel.exists():
        print(f"{wheel} does not exist")
        return 2
    if not _holds_vllm(wheel, packed=True):
        return 2
    verdicts = expiry.judge_wheel(wheel)
    rows = [("patch", "verdict", "unchanged", "changed", "gone")]
    rows += [
        (v.id, v.word, str(len(v.same)), str(len(v.changed)), str(len(v.gone))) for v in verdicts
    ]
    _table(rows)
    print(
        "fixed: the repaired source's mark was found; needed: nothing has changed; read: the "
        "source has changed, run the row's tests against this wheel"
    )
    if output is not None:
        found = [asdict(verdict) | {"verdict": verdict.word} for verdict in verdicts]
        document = {"wheel": wheel.name, "label": "rendered", "verdicts": found}
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if any(verdict.fixed for verdict in verdicts) else 0


def write_docs(output: Path) -> int:
    """Write the findings document."""
    output.write_text(documents.findings(), encoding="utf-8")
    return 0
