"""The role's parts that can be checked without a node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from jinja2 import Environment

from twinspark.checkpoint import known, sender, wire

REPOSITORY = Path(__file__).parents[2]
ROLE = REPOSITORY / "roles" / "checkpoint"
LAUNCHER = REPOSITORY / "templates" / "opt" / "twinspark" / "bin" / "twinspark-checkpoint.j2"


def defaults() -> dict[str, object]:
    return yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())


def test_defaults__are_those_of_the_tool() -> None:
    assert defaults()["checkpoint_repository"] == known.REPOSITORY
    assert defaults()["checkpoint_revision"] == known.DEFAULT_REVISION
    assert defaults()["checkpoint_port"] == wire.DEFAULT_PORT


def test_argument_specs__document_every_default() -> None:
    specs = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())
    options = specs["argument_specs"]["main"]["options"]
    assert {name: option["default"] for name, option in options.items()} == defaults()


def launcher(root: Path) -> Path:
    environment = Environment(autoescape=False, keep_trailing_newline=True)  # noqa: S701 - a shell script
    environment.filters["comment"] = lambda text: f"# {text}"
    path = root / "launcher"
    path.write_text(
        environment.from_string(LAUNCHER.read_text()).render(
            ansible_managed="managed", checkpoint_root=root
        )
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("client", [False, True])
def test_launcher__uses_the_hubs_client_where_it_is(tmp_path: Path, client: bool) -> None:
    script = launcher(tmp_path)
    if client:
        python = tmp_path / "tools" / "hub" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text('#!/bin/sh\necho client "$PYTHONPATH" "$@"\n')
        python.chmod(0o755)
    done = subprocess.run(
        [script, "inspect", "a b"], capture_output=True, text=True, check=False, timeout=30
    )
    if client:
        wheel = tmp_path / "tools" / "twinspark.whl"
        assert done.stdout == f"client {wheel} -P -m twinspark.checkpoint inspect a b\n"
    else:
        assert done.returncode != 0  # the system's Python finds no wheel here
        assert "twinspark" in done.stderr


def test_hub_lock__pins_every_package_with_hashes_and_no_xet() -> None:
    lines = (ROLE / "files" / "hub.lock").read_text().splitlines()
    packages = [line for line in lines if line and line[0].isalpha()]
    assert all("==" in line and line.endswith("\\") for line in packages)
    assert not any(line.startswith("hf-xet") for line in packages)
    engine = (REPOSITORY / "env" / "locks" / "spark.lock").read_text()
    for line in packages:
        assert line.split()[0] in engine, f"{line} is another version than the engine's"


def test_serving__outlives_the_pulling_sides_patience() -> None:
    assert sender.STALL > 10.0  # `pull --stall`
