"""How a key of an env file is described: where it goes, in which unit, and who says so."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Place = Literal["flag", "engine env", "host"]


@dataclass(frozen=True, slots=True)
class Flag:
    """The key becomes a flag of `vllm serve`, without the dashes, in serve.yaml."""

    name: str
    place: Place = "flag"


@dataclass(frozen=True, slots=True)
class EngineEnv:
    """The key becomes a variable of engine.env, equal on both nodes."""

    name: str
    place: Place = "engine env"


@dataclass(frozen=True, slots=True)
class NodeEnv:
    """The key becomes a variable of node.env, beside the host's own facts."""

    name: str
    place: Place = "host"


@dataclass(frozen=True, slots=True)
class Derived:
    """The key does not travel by itself: a renderer makes something of it.

    Attributes:
        name: What becomes of it, for the key table.
        place: File that it ends up in.
    """

    name: str
    place: Place = "flag"


@dataclass(frozen=True, slots=True)
class Key:
    """What the schema says about a key beyond its type, bounds and description.

    Attributes:
        to: Where the value goes.
        unit: Unit of the value; empty for names and switches.
        source: Who says that the value is right, and who says otherwise.
        scope: "deepseek" or "lab" where only that model takes the key.
    """

    to: Flag | EngineEnv | NodeEnv | Derived
    source: str
    unit: str = ""
    scope: Literal["any", "deepseek", "lab"] = "any"


def key_of(field: FieldInfo) -> Key:
    """The schema's own description of a field.

    Raises:
        TypeError: A field was added without one.
    """
    for item in field.metadata:
        if isinstance(item, Key):
            return item
    raise TypeError(f"a field has no Key(...) beside its type: {field.description!r}")


_INTEGER = re.compile(r"0|[1-9][0-9]*")
_DECIMAL = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]+)?")


def _integer(value: object) -> object:
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        raise ValueError("is not a whole number: digits only, no sign, no separators")
    return value


def _decimal(value: object) -> object:
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise ValueError("is not a number: digits and a decimal point only")
    return value


def _switch(value: object) -> object:
    if isinstance(value, str):
        if value not in {"true", "false"}:
            raise ValueError("is not a switch: write true or false")
        return value == "true"
    return value


def _absolute(value: str) -> str:
    if (
        not value.startswith("/")
        or ".." in value.split("/")
        or (len(value) > 1 and value.endswith("/"))
    ):
        raise ValueError("is not an absolute path: begin with /, no .. in it, no / at the end")
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_./:-]*", value):
        raise ValueError("is not a name: letters, digits and _./:- only, a letter or digit first")
    return value


Integer = Annotated[int, BeforeValidator(_integer)]
Decimal = Annotated[float, BeforeValidator(_decimal)]
Switch = Annotated[bool, BeforeValidator(_switch)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Name = Annotated[str, AfterValidator(_name)]
