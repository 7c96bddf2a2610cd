"""The README's role table, made from the playbooks' order and the roles' own descriptions.

Regenerate with `.venv/bin/python tests/roles/role_table.py` and review the diff.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BEGIN, END = "<!-- roles: begin (generated) -->", "<!-- roles: end -->"


class Loader(yaml.SafeLoader):
    """Reads Ansible's own tags as their plain values."""


Loader.add_multi_constructor("!", lambda loader, _suffix, node: loader.construct_scalar(node))


def load(path: Path) -> Any:
    """A YAML document of the project."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)  # noqa: S506 (a SafeLoader)


def stages() -> list[str]:
    """Names of the stages, in the order of site.yml."""
    plays = load(ROOT / "site.yml")
    return [Path(play["ansible.builtin.import_playbook"]).stem for play in plays]


def roles_of(stage: str) -> list[str]:
    """Roles that a stage plays, each once, in order."""
    found: list[str] = []
    for play in load(ROOT / "playbooks" / f"{stage}.yml"):
        found += [role if isinstance(role, str) else role["role"] for role in play.get("roles", [])]
        for task in play.get("tasks", []) + play.get("pre_tasks", []):
            for module in ("ansible.builtin.import_role", "ansible.builtin.include_role"):
                if module in task and "tasks_from" not in task[module]:
                    found.append(task[module]["name"])
    return list(dict.fromkeys(found))


def table() -> str:
    """The table as Markdown."""
    rows = ["| stage | role | what it leaves |", "|---|---|---|"]
    seen: set[str] = set()
    for stage in stages():
        for role in roles_of(stage):
            if role in seen:
                continue
            seen.add(role)
            spec = load(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
            rows.append(f"| {stage} | `{role}` | {spec['main']['short_description']} |")
    return "\n".join(rows)


def main() -> None:
    """Write the table into the README."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
