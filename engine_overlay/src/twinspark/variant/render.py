"""From a variant and a host to the three files of a node."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinspark.variant.dotenv import quote
from twinspark.variant.environment import Layout, engine_environment, node_environment
from twinspark.variant.keys import Flag, key_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinspark.variant.host import Host
    from twinspark.variant.schema import Variant

Scalar = str | int | float | bool
Value = Scalar | dict[str, Scalar]

# Words and shapes that YAML 1.1 reads as something else than text.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


@dataclass(frozen=True, slots=True)
class Rendered:
    """The files of one variant on one node, as texts.

    Attributes:
        serve_yaml: For `vllm serve --config`.
        engine_env: Environment of the engine, equal on all nodes.
        node_env: Environment that only this node has.
    """

    serve_yaml: str
    engine_env: str
    node_env: str

    def files(self) -> dict[str, str]:
        """Text by file name."""
        return {
            "serve.yaml": self.serve_yaml,
            "engine.env": self.engine_env,
            "node.env": self.node_env,
        }


def render(variant: Variant, host: Host, layout: Layout | None = None) -> Rendered:
    """Render a variant for a node.

    Args:
        variant: A checked variant.
        host: The node.
        layout: Folders on the node; the project's own when omitted.
    """
    layout = layout or Layout()
    about = (
        f"# Variant {variant.name} for {host.name}, rank {host.rank} of {host.nnodes}. "
        f"Rendered: edit env/{variant.name}.env."
    )
    equal = f"# Variant {variant.name}, equal on every node. Rendered: edit env/{variant.name}.env."
    return Rendered(
        serve_yaml=f"{about}\n"
        + "".join(f"{flag}: {_yaml(value)}\n" for flag, value in flags(variant, host).items()),
        engine_env=f"{equal}\n{_env(engine_environment(variant, layout))}",
        node_env=f"{about}\n{_env(node_environment(variant, host))}",
    )


def flags(variant: Variant, host: Host) -> dict[str, Value]:
    """The flags of `vllm serve`, without dashes in front, in the order of serve.yaml.

    A switch that is off becomes `no-<flag>: true`: 0.27.1 drops a `false` in this file without a
    word (utils/argparse_utils.py:573-575), and its own default would hold.
    """
    rendered: dict[str, Value] = {}
    for name, field in type(variant).model_fields.items():
        key = key_of(field)
        value = getattr(variant, name)
        if not isinstance(key.to, Flag) or not variant.takes(key) or value is None:
            continue
        if isinstance(value, bool):
            rendered.update(_switch(key.to.name, on=value))
        else:
            rendered[key.to.name] = value
    return rendered | _derived_flags(variant) | _host_flags(host)


def _derived_flags(variant: Variant) -> dict[str, Value]:
    if not variant.is_deepseek:
        return {}
    rendered: dict[str, Value] = {}
    if variant.TOOL_CALL_PARSER != "none":
        rendered["tool-call-parser"] = variant.TOOL_CALL_PARSER
    rendered.update(_switch("enable-auto-tool-choice", on=variant.TOOL_CALL_PARSER != "none"))
    if variant.SPEC_METHOD != "none":
        rendered["speculative-config"] = {
            "method": variant.SPEC_METHOD,
            "num_speculative_tokens": variant.SPEC_TOKENS,
            "draft_sample_method": variant.DRAFT_SAMPLE_METHOD,
        }
    rendered["compilation-config"] = {"cudagraph_mode": variant.CUDAGRAPH_MODE}
    if variant.CUDAGRAPH_MODE != "NONE" and variant.CUDAGRAPH_MAX_CAPTURE_SIZE is None:
        rendered["max-cudagraph-capture-size"] = variant.MAX_NUM_SEQS * (variant.draft_tokens + 1)
    return rendered


def _host_flags(host: Host) -> dict[str, Value]:
    rendered: dict[str, Value] = {
        "host": host.management_address,
        "nnodes": host.nnodes,
        "node-rank": host.rank,
        "master-addr": host.master_address,
    }
    return rendered if host.is_head else rendered | {"headless": True}


def _switch(flag: str, *, on: bool) -> dict[str, Value]:
    return {flag if on else f"no-{flag}": True}


def _yaml(value: Value) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value
    return json.dumps(value)


def _env(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={quote(value)}\n" for name, value in variables.items())
