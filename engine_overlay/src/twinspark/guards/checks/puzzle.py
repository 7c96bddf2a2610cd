"""puzzle: a few questions that need several right steps, judged by their final number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from twinspark.guards.client import Plan
from twinspark.guards.context import BATTERIES, Guard
from twinspark.guards.model import Check, verdict

if TYPE_CHECKING:
    from twinspark.guards.client import Client
    from twinspark.guards.context import Context

TOKENS: Final = 2048
_CUPS: Final = (
    "A shelf holds 3 boxes of 12 cups each. Five cups break, then 2 more boxes of 12 arrive and a "
    "quarter of all whole cups is sold, rounded down. How many cups remain?"
)
_RUNNERS: Final = (
    "Four runners finish. Ann is not first. Bob is right behind Cas. Dee is last. In which place "
    "is Ann? Answer with the number of the place."
)
PUZZLES: Final = (
    (_CUPS, "42"),  # 36 - 5 + 24 = 55; 55 // 4 = 13
    (_RUNNERS, "3"),  # Cas 1, Bob 2, Ann 3, Dee 4
    ("What is 17 * 23 - 4 * (19 - 6)?", "339"),
)
WISH: Final = " Think step by step and end with a line `Answer: N`."


def run(context: Context) -> list[Check]:
    """One line a puzzle; an answer that was cut is not a wrong one."""
    with context.client() as client:
        return [_one(context, client, index) for index in range(len(PUZZLES))]


def _one(context: Context, client: Client, index: int) -> Check:
    puzzle, expected = PUZZLES[index]
    answer = client.chat(
        [{"role": "user", "content": puzzle + WISH}], TOKENS, context.salt("puzzle", index)
    )
    found = re.findall(r"Answer:\s*\**\s*(-?\d+)", answer.text)
    name, got = f"puzzle.{index}", found[-1] if found else "no answer line"
    if not found and answer.truncated:
        detail = f"cut at {TOKENS} tokens before its answer line"
        return verdict(name, context.node, False, expected, got, detail, failure="truncated")
    return verdict(name, context.node, got == expected, expected, got)


def _plan(context: Context) -> Plan:
    count = len(PUZZLES)
    return Plan(count, 100 * count, TOKENS * count, context.timeout, f"{count} puzzles")


def _applies(context: Context) -> str:
    return "the recall model does not reason" if context.exam.exact else ""


GUARD = Guard("puzzle", "api", "a few steps of reasoning", BATTERIES, run, _plan, _applies)
