"""Rules of the project that no linter knows, over every role and playbook."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from roles.role_table import ROOT, load

if TYPE_CHECKING:
    from pathlib import Path

ROLES = sorted(p for p in (ROOT / "roles").iterdir() if p.is_dir())
TASK_FILES = sorted(
    [*(ROOT / "roles").glob("*/tasks/*.yml"), *(ROOT / "roles").glob("*/handlers/*.yml")]
)
STAGES = ["preflight", "host", "accelerator", "fabric", "weights", "engine", "serve", "guard"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tasks(path: Path) -> list[dict[str, Any]]:
    """Every task of a file, those within blocks included."""
    found: list[dict[str, Any]] = []
    todo = list(load(path) or [])
    while todo:
        task = todo.pop(0)
        found.append(task)
        for part in ("block", "rescue", "always"):
            todo.extend(task.get(part, []))
    return found


@pytest.mark.parametrize("role", ROLES, ids=lambda p: p.name)
def test_argument_specs__have_exactly_the_keys_of_the_defaults(role: Path) -> None:
    specs = load(role / "meta" / "argument_specs.yml")["argument_specs"]
    defaults = load(role / "defaults" / "main.yml") or {}
    options = specs["main"].get("options", {})
    assert set(options) == set(defaults)
    for key, option in options.items():
        assert {"type", "description"} <= set(option), key
        assert option.get("default") == defaults[key], (
            f"{key}: the spec's default is not the role's"
        )


@pytest.mark.parametrize("path", TASK_FILES, ids=name)
def test_task_file__fits_a_screen(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 80


@pytest.mark.parametrize("path", TASK_FILES, ids=name)
def test_task__is_a_sentence_and_hides_no_failure(path: Path) -> None:
    for task in tasks(path):
        assert "name" in task, task
        assert task["name"][0].isupper(), task["name"]
        assert "ignore_errors" not in task, task["name"]
        assert "ansible_check_mode" not in str(task.get("when", "")), task["name"]


@pytest.mark.parametrize("path", TASK_FILES, ids=name)
def test_command__says_what_it_changes_and_uses_no_shell(path: Path) -> None:
    for task in tasks(path):
        assert "ansible.builtin.shell" not in task, task["name"]
        if "ansible.builtin.command" in task:
            arguments = task["ansible.builtin.command"]
            assert isinstance(arguments, dict), task["name"]
            assert "argv" in arguments, task["name"]
            assert "changed_when" in task or "creates" in arguments, task["name"]


@pytest.mark.parametrize("path", TASK_FILES, ids=name)
def test_file__has_an_owner_and_a_quoted_mode(path: Path) -> None:
    for task in tasks(path):
        for module in ("ansible.builtin.template", "ansible.builtin.copy"):
            if module in task and not str(task.get("delegate_to", "")).startswith("localhost"):
                arguments = task[module]
                assert {"owner", "group", "mode"} <= set(arguments), task["name"]
                assert re.fullmatch(r"0[0-7]{3}|\{\{.*\}\}", str(arguments["mode"])), task["name"]


def test_templates__say_that_they_are_managed_and_by_which_role() -> None:
    templates = sorted((ROOT / "templates").rglob("*.j2"))
    assert templates
    for template in templates:
        text = template.read_text(encoding="utf-8")
        assert "{{ ansible_managed | comment }}" in text, name(template)
        assert "# twinspark:" in text, name(template)
        assert "{%" not in text.replace("{% for", "").replace("{% endfor", ""), (
            f"{name(template)} decides something"
        )


def test_templates__are_in_one_tree() -> None:
    assert not list((ROOT / "roles").glob("*/templates"))


def test_site__plays_the_stages_in_order_and_nothing_else() -> None:
    plays = load(ROOT / "site.yml")
    assert [p["ansible.builtin.import_playbook"] for p in plays] == [
        f"playbooks/{s}.yml" for s in STAGES
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_stage__is_tagged_with_its_name_and_always_is_for_preflight_alone(stage: str) -> None:
    for play in load(ROOT / "playbooks" / f"{stage}.yml"):
        tags = [set(play.get("tags", [])) | set(role["tags"]) for role in play.get("roles", [])]
        for tagged in tags or [set(play["tags"])]:
            assert stage in tagged, play["name"]
            shared = stage == "preflight" or "variant" in tagged  # the variant is always rendered
            assert ("always" in tagged) == shared, play["name"]
