"""structured: a tool call with arguments that fit, and JSON that follows its schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from twinspark.guards.checks.text import NO_THINKING
from twinspark.guards.client import Plan
from twinspark.guards.context import BATTERIES, Guard
from twinspark.guards.detectors import markup_leak
from twinspark.guards.model import Check, verdict

if TYPE_CHECKING:
    from twinspark.guards.context import Context
    from twinspark.guards.wire import Completion

TOKENS: Final = 256


class Weather(BaseModel):
    """Arguments of the tool that is offered."""

    model_config = ConfigDict(extra="forbid", strict=True)
    city: str
    unit: Literal["celsius", "fahrenheit"]


class Person(BaseModel):
    """The object that is asked for."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str
    born: int


TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": Weather.model_json_schema(),
    },
}


def run(context: Context) -> list[Check]:
    """One tool call, one JSON answer."""
    with context.client() as client:
        called = client.chat(
            [{"role": "user", "content": "What is the weather in Utrecht, in celsius?"}],
            TOKENS, context.salt("tool"), tools=[TOOL], tool_choice="auto", **NO_THINKING,
        )  # fmt: skip
        schema = {"name": "person", "schema": Person.model_json_schema(), "strict": True}
        written = client.chat(
            [{"role": "user", "content": "Ada Lovelace, born 1815, as JSON with name and born."}],
            TOKENS, context.salt("json"), **NO_THINKING,
            response_format={"type": "json_schema", "json_schema": schema},
        )  # fmt: skip
    return [_tool(context, called), _json(context, written)]


def _tool(context: Context, answer: Completion) -> Check:
    name, node = "structured.tool_call", context.node
    expected = 'get_weather(city="Utrecht", unit="celsius"), finish tool_calls'
    if answer.truncated:
        return verdict(name, node, False, expected, "cut", answer.text[:80], failure="truncated")
    calls = answer.tool_calls
    actual = ", ".join(f"{call}({arguments})" for call, arguments in calls) or "no call"
    why = ""
    if len(calls) != 1 or calls[0][0] != "get_weather":
        leaked = markup_leak(answer.text, frozenset())
        why = f"the call leaked into the text: {leaked}" if leaked else answer.text[:80]
    else:
        try:
            given = Weather.model_validate_json(calls[0][1])
            if given.city.strip().lower() != "utrecht" or given.unit != "celsius":
                why = "other arguments than asked for"
        except ValidationError as error:
            why = str(error.errors()[0]["msg"])
    if not why and answer.finish_reason != "tool_calls":
        why = f"finish_reason {answer.finish_reason}"
    failed = bool(why) or not calls
    return verdict(name, node, not failed, expected, actual, why or "")


def _json(context: Context, answer: Completion) -> Check:
    name, node, expected = "structured.json_schema", context.node, '{"name": ..., "born": 1815}'
    if answer.truncated:
        return verdict(name, node, False, expected, "cut", answer.text[:80], failure="truncated")
    try:
        person = Person.model_validate_json(answer.text)
        why = "" if person.born == 1815 else "another year"
    except ValidationError as error:
        why = str(error.errors()[0]["msg"])
    return verdict(name, node, not why, expected, json.dumps(answer.text[:80]), why)


def _plan(context: Context) -> Plan:
    return Plan(2, 200, 2 * TOKENS, context.timeout, "one tool call, one JSON answer")


def _applies(context: Context) -> str:
    return "the recall model speaks no JSON" if context.exam.exact else ""


GUARD = Guard(
    "structured", "api", "tool call and JSON schema", BATTERIES, run, _plan, _applies
)  # fmt: skip
