"""Ansible's way to the variant schema: one filter, one line of error."""

# ruff: noqa: INP001  Ansible loads filters by folder, not as a package

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError  # type: ignore[import-untyped]  # has no types

try:
    from twinspark.variant import HostError, VariantError, load, render
    from twinspark.variant.environment import Layout
    from twinspark.variant.host import hosts
except ImportError as error:
    raise AnsibleFilterError(
        f"{error}: run `./run setup` and use .venv/bin/ansible-playbook"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def twinspark_variant(
    path: str,
    hostvars: Mapping[str, Mapping[str, Any]],
    host: str,
    nodes: Sequence[str],
    root: str = "/opt/twinspark",
) -> dict[str, Any]:
    """Check a variant's env file and render it for one node.

    Args:
        path: The env file on the controller.
        hostvars: Ansible's `hostvars`.
        host: The node to render for.
        nodes: All nodes that serve together: `groups['sparks']`.
        root: Folder of the project on the nodes.

    Returns:
        The texts `serve_yaml`, `engine_env` and `node_env`, and what roles need of the variant:
        `name`, `model`, `model_kind`, `served_model_name`, `port`, `master_port`, `master_address`,
        `cuda_home` (empty on CPU) and `ready_timeout_s`.

    Raises:
        AnsibleFilterError: The file or the inventory is refused; one line, with file and line
            number.
    """
    try:
        variant = load(Path(str(path)))
        own = hosts(_plain(hostvars, nodes), list(nodes))[host]
    except (VariantError, HostError) as error:
        raise AnsibleFilterError(" | ".join(str(error).splitlines())) from None
    except KeyError:
        raise AnsibleFilterError(f"{host} is not one of the nodes {', '.join(nodes)}") from None
    rendered = render(variant, own, Layout(release=f"{root}/current"))
    return {
        "name": variant.name,
        "serve_yaml": rendered.serve_yaml,
        "engine_env": rendered.engine_env,
        "node_env": rendered.node_env,
        "model": variant.MODEL,
        "model_kind": variant.MODEL_KIND,
        "served_model_name": variant.SERVED_MODEL_NAME,
        "port": variant.API_PORT,
        "master_port": variant.MASTER_PORT,
        "master_address": own.master_address,
        "cuda_home": variant.CUDA_HOME if variant.is_deepseek else "",
        "ready_timeout_s": variant.VLLM_ENGINE_READY_TIMEOUT_S,
    }


def _plain(
    hostvars: Mapping[str, Mapping[str, Any]], nodes: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The few variables that matter, as plain values: Ansible's mappings template lazily."""
    names = ("ansible_host", "twinspark_rank", "twinspark_rails", "twinspark_gid_index")
    plain: dict[str, dict[str, Any]] = {}
    for node in nodes:
        if node not in hostvars:
            raise AnsibleFilterError(f"{node} is not in the inventory")
        plain[str(node)] = {name: hostvars[node][name] for name in names if name in hostvars[node]}
    return plain


class FilterModule:
    """The filters of the project."""

    def filters(self) -> dict[str, Any]:
        """Filter by name."""
        return {"twinspark_variant": twinspark_variant}
