"""Hosts from an inventory file, without Ansible: for the command line and for tests.

Only what an inventory of this project uses: groups with `children`, `hosts` and `vars`, in YAML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from twinspark.variant.errors import HostError
from twinspark.variant.host import Host, hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PARTS = ("head", "worker")


def read_inventory(path: Path, group: str = "sparks") -> dict[str, Host]:
    """The hosts of one group, checked against each other, in the order of ranks.

    Args:
        path: Inventory in YAML.
        group: The group that serves together.

    Raises:
        HostError: The file cannot be read or has no such group, or the hosts do not make a pair.
    """
    return _checked(_read(path), path, group)


def read_pair(path: Path) -> dict[str, Host]:
    """As `read_inventory`, of a pair with one head and one worker, as the roles want it.

    Raises:
        HostError: As there, or the group has not exactly one of each.
    """
    tree = _read(path)
    found = [name for name, _ in _hosts(_group(tree, "sparks") or {}, {})]
    parts = [[name for name, _ in _hosts(_group(tree, part) or {}, {})] for part in PARTS]
    if found and (
        [len(part) for part in parts] != [1, 1] or sorted(found) != sorted([*parts[0], *parts[1]])
    ):
        raise HostError(
            f"{path}: the group sparks has {', '.join(found)}; it must consist of the groups head "
            "and worker with one host each (TP=2 over two nodes)"
        )
    return _checked(tree, path, "sparks")


def _read(path: Path) -> object:
    try:
        tree: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise HostError(f"{path}: cannot be read as YAML: {error}") from error
    return tree


def _checked(tree: object, path: Path, group: str) -> dict[str, Host]:
    found = dict(_hosts(_group(tree, group) or {}, {}))
    if not found:
        raise HostError(f"{path}: the group {group} has no hosts: name the nodes there")
    return hosts(found, list(found))


def _group(tree: object, name: str) -> dict[str, Any] | None:
    if not isinstance(tree, dict):
        return None
    for key, value in tree.items():
        if not isinstance(value, dict):
            continue
        if key == name:
            return value
        if found := _group(value.get("children"), name):
            return found
    return None


def _hosts(
    group: Mapping[str, Any], inherited: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    variables = {**inherited, **(group.get("vars") or {})}
    for name, own in (group.get("hosts") or {}).items():
        yield name, {**variables, **(own or {})}
    for child in (group.get("children") or {}).values():
        yield from _hosts(child or {}, variables)
