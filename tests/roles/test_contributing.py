"""CONTRIBUTING is true of the tree: each path exists, for everything that its list is about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from twinspark.patches import MODULES

ROOT = Path(__file__).resolve().parents[2]
TWINSPARK = ROOT / "engine_overlay/src/twinspark"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"(?ms)^## (.+?)\n(.*?)(?=^## |\Z)", TEXT))
PATH = re.compile(r"(?:[\w.*<>-]+/)+(?:[\w.*<>,{}-]+)?|[\w-]+\.md")

INSTANCES: dict[str, list[dict[str, str]]] = {
    "Add a variant": [{"variant": path.stem} for path in (ROOT / "env").glob("*.env")],
    "Add a role": [{"role": path.parent.parent.name} for path in ROOT.glob("roles/*/defaults/*")],
    "Add a patch": [
        {"patch": name.replace(".", "/"), "layer": name.split(".")[0]} for name in MODULES
    ],
    "Add a guard": [
        {"guard": path.stem}
        for path in (TWINSPARK / "guards/checks").glob("*.py")
        if path.stem != "__init__"
    ],
    "Add a kernel": [{"op": path.parent.name} for path in TWINSPARK.glob("kernels/*/kernel.py")],
    "Renew the locks": [{}],
}


def paths(section: str) -> list[str]:
    """Paths that a section names, with braces written out; a command gives its arguments."""
    words = [word for span in re.findall(r"`([^`]+)`", section) for word in span.split()]
    found = [word for word in words if PATH.fullmatch(word) and not word.startswith(".venv")]
    written: list[str] = []
    for path in found:
        braces = re.search(r"\{(.*)\}", path)
        parts = braces[1].split(",") if braces else [""]
        written += [path.replace(braces[0], part) if braces else path for part in parts]
    return written


def test_sections__are_those_that_have_instances():
    assert SECTIONS.keys() == INSTANCES.keys()
    assert all(INSTANCES.values())


@pytest.mark.parametrize("title", INSTANCES)
def test_list__every_path_exists_for_everything_there_is(title: str):
    named = paths(SECTIONS[title])
    assert len(named) >= 4
    assert {key for one in INSTANCES[title] for key in one} == set(
        re.findall(r"<(\w+)>", " ".join(named))
    )
    for instance in INSTANCES[title]:
        for path in named:
            there = path
            for key, value in instance.items():
                there = there.replace(f"<{key}>", value)
            assert any(ROOT.glob(there.rstrip("/"))), f"{title}: {there} is not there"


def test_paths__a_missing_file_would_be_seen():
    assert paths("`roles/<role>/nothing.yml` and `a/{b,c}.py`, `run --flag x/y.py`") == [
        "roles/<role>/nothing.yml",
        "a/b.py",
        "a/c.py",
        "x/y.py",
    ]
    assert not any(ROOT.glob("roles/variant/nothing.yml"))
