"""env/README.md, generated from the schema: `twinspark variant document --write env/README.md`."""

from __future__ import annotations

import types
import typing
from typing import TYPE_CHECKING, Any

import annotated_types

from twinspark.variant.field import SOURCES
from twinspark.variant.keys import Derived, EngineEnv, Flag, key_of
from twinspark.variant.planner import flash_layout, gib
from twinspark.variant.schema import Variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

IN_FLIGHT = (1024, 2048, 4096, 8192, 16_384, 32_768)
CONTEXTS = (131_072, 350_000, 524_288, 1_048_576)

_HEAD = """\
# Variants

<!-- Generated from the schema: twinspark variant document --write env/README.md -->

A variant is one env file that inherits from no other: what it does not write takes the default
shown here, and only MODEL_KIND must be there. `env/<variant>.env` is checked before any node is
touched, and a refusal names the file and the line. `twinspark variant check env/*.env` checks
without Ansible, `render` shows what a node gets, `diff` compares two variants key by key, `plan`
prints the KV budget.

A line is blank, `# comment` from column 0, or `KEY=VALUE`. KEY has capital letters, digits and
underscores; VALUE is bare (`A-Z a-z 0-9 _ . / : , @ % + = -`) or in single quotes, without single
quotes, dollar signs and backslashes in it. There is no `export`, no comment behind a value, no
expansion and no second assignment of a key. Bash, systemd and python-dotenv read these files alike.

"""

_FIELD = """
Sources disagree; the values are of people who serve this model on Sparks, and none was measured on
a Spark here:

"""

_PLAN = """
## KV of one request

GiB that one rank needs for one request, by its context and by the tokens in flight (2 x
`MAX_NUM_BATCHED_TOKENS` with `ASYNC_SCHEDULING=true`, once without), with DSpark. The engine does
not start when the need of one request of `MAX_MODEL_LEN` exceeds the pool, `KV_CACHE_MEMORY_BYTES`.
Tokens in flight dominate: the cheap lever is a smaller step, not more memory. **Rendered**:
computed by the rules of vLLM 0.27.1 and compared with its own functions in a test; nobody has run
it on a Spark.

"""


def document(variants: Mapping[str, Variant]) -> str:
    """The whole of env/README.md.

    Args:
        variants: The shipped variants by name.
    """
    return (
        _HEAD
        + "".join(_variant_table(variants))
        + "\n## Keys\n\n"
        + "".join(_key_table())
        + _FIELD
        + "".join(f"- **{name}**: {what}\n" for name, what in SOURCES.items())
        + _PLAN
        + "".join(plan_table())
    )


def plan_table(*, draft: bool = True) -> Iterator[str]:
    """The planner's table, as lines of Markdown: contexts down, tokens in flight across.

    Args:
        draft: With DSpark's stages.
    """
    layout = flash_layout(draft=draft)
    yield "| context | " + " | ".join(f"{tokens:,} in flight" for tokens in IN_FLIGHT) + " |\n"
    yield "|---:|" + "---:|" * len(IN_FLIGHT) + "\n"
    for context in CONTEXTS:
        needs = (layout.bytes_needed(context, tokens) for tokens in IN_FLIGHT)
        yield f"| {context:,} | " + " | ".join(gib(need).split()[0] for need in needs) + " |\n"


def bounds(field: FieldInfo) -> str:
    """What a key's value may be, in words."""
    if choices := _choices(field.annotation):
        return ", ".join(choices)
    limits = [
        item.ge if isinstance(item, annotated_types.Ge) else item.le
        for item in field.metadata
        if isinstance(item, annotated_types.Ge | annotated_types.Le)
    ]
    return " to ".join(dict.fromkeys(f"{limit:,}" for limit in limits))


def type_name(field: FieldInfo) -> str:
    """The type of a key's value, as an operator would call it."""
    plain = {bool: "switch", int: "number", float: "number"}
    return next(
        (name for kind, name in plain.items() if kind in _types(field.annotation)),
        "choice" if _choices(field.annotation) else "text",
    )


def shown(value: object) -> str:
    """A value as it stands in an env file."""
    if value is None:
        return "(unset)"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _types(annotation: Any) -> tuple[Any, ...]:  # noqa: ANN401  a type expression has no better type
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return tuple(kind for part in typing.get_args(annotation) for kind in _types(part))
    if typing.get_origin(annotation) is typing.Annotated:
        return _types(typing.get_args(annotation)[0])
    return (annotation,)


def _choices(annotation: Any) -> tuple[str, ...]:  # noqa: ANN401  a type expression has no better type
    kinds = _types(annotation)
    return tuple(
        str(choice)
        for kind in kinds
        if typing.get_origin(kind) is typing.Literal
        for choice in typing.get_args(kind)
    ) or (("true", "false") if bool in kinds else ())


def _variant_table(variants: Mapping[str, Variant]) -> Iterator[str]:
    yield "| variant | context | requests | tokens a step | utilization | KV pool | spec | graphs "
    yield "|\n"
    yield "|---|---:|---:|---:|---:|---:|---|---|\n"
    for name, variant in sorted(variants.items()):
        gpu = variant.is_deepseek
        graphs = variant.CUDAGRAPH_MODE if gpu else "eager, CPU engine"
        spec = f"{variant.SPEC_METHOD} {variant.SPEC_TOKENS or ''}".strip() if gpu else "none"
        pool = (
            gib(variant.KV_CACHE_MEMORY_BYTES) if gpu else f"{variant.VLLM_CPU_KVCACHE_SPACE} GiB"
        )
        utilization = f"{variant.GPU_MEMORY_UTILIZATION:.2f}" if gpu else ""
        yield (
            f"| `{name}` | {variant.MAX_MODEL_LEN:,} | {variant.MAX_NUM_SEQS} | "
            f"{variant.MAX_NUM_BATCHED_TOKENS:,} | {utilization} | {pool} | {spec} | {graphs} |\n"
        )


def _key_table() -> Iterator[str]:
    yield "| key | type | unit | bounds | default | used by | what it is | source |\n"
    yield "|---|---|---|---|---|---|---|---|\n"
    for name, field in Variant.model_fields.items():
        key = key_of(field)
        scope = {"any": "", "deepseek": "", "lab": " (lab only)"}[key.scope]
        cells = (
            f"`{name}`",
            type_name(field),
            key.unit,
            bounds(field),
            f"`{shown(field.default)}`",
            _used_by(key.to) + scope,
            field.description or "",
            key.source,
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _used_by(place: Flag | EngineEnv | object) -> str:
    match place:
        case Flag(name=name):
            return f"flag `--{name}`"
        case Derived(name=name, place=where):
            return f"{where}: {name}"
        case EngineEnv(name=name):
            return f"engine.env `{name}`"
        case _:
            return f"node.env `{getattr(place, 'name', '')}`"
