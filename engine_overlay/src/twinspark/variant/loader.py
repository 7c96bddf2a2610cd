"""From a file to a variant, or to a refusal that names every line."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from twinspark.variant import advice
from twinspark.variant.dotenv import Assignment, parse, read
from twinspark.variant.errors import Problem, VariantError
from twinspark.variant.rules import RuleError
from twinspark.variant.schema import Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic_core import ErrorDetails

_NAME = re.compile(r"[a-z0-9](-?[a-z0-9]){0,39}")


def load(path: Path) -> Variant:
    """Read and check a variant's env file.

    Args:
        path: The file; its stem is the variant's name.

    Raises:
        VariantError: The file is refused; the text names each line and what to do.
    """
    if path.suffix != ".env" or not _NAME.fullmatch(path.stem):
        raise VariantError(
            str(path),
            [
                Problem(
                    "the file's name names the unit and a folder on the nodes: write "
                    "<name>.env, the name of small letters, digits and dashes"
                )
            ],
        )
    return _validate(read(path), str(path)).named(path.stem)


def loads(text: str, source: str) -> Variant:
    """As `load`, from a text.

    Raises:
        VariantError: The text is refused.
    """
    return _validate(parse(text, source), source).named(Path(source).stem)


def _validate(assignments: tuple[Assignment, ...], source: str) -> Variant:
    lines = {item.key: item.line for item in assignments}
    if "MODEL_KIND" not in lines:
        raise VariantError(
            source,
            [
                Problem(
                    "MODEL_KIND is missing: the file is empty or cut short; a variant is one whole "
                    "file and says first what it serves"
                )
            ],
        )
    try:
        return Variant.model_validate({item.key: item.value for item in assignments})
    except ValidationError as error:
        problems = [problem for detail in error.errors() for problem in _problems(detail, lines)]
        causes = [detail.get("ctx", {}).get("error") for detail in error.errors()]
        planned = next((one.variant for one in causes if isinstance(one, RuleError)), None)
        if planned is not None:
            planned.named(Path(source).stem)
        raise VariantError(source, problems, planned) from error


def _problems(detail: ErrorDetails, lines: dict[str, int]) -> Iterator[Problem]:
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, RuleError):
        for problem in cause.problems:
            yield Problem(problem.text, problem.key, lines.get(problem.key or ""))
        return
    key = str(detail["loc"][0])
    yield Problem(_explain(key, detail, cause), key, lines.get(key))


def _explain(key: str, detail: ErrorDetails, cause: Exception | None) -> str:
    if detail["type"] == "extra_forbidden":
        return _unknown(key)
    value = str(detail["input"])
    if known := advice.VALUES.get((key, value)):
        return f"{value}: {known}"
    if cause is not None:
        return f"{value!r} {cause}"
    return f"{value!r} is outside what it takes: {_accepted(detail)}"


def _unknown(key: str) -> str:
    if known := advice.KEYS.get(key):
        return known
    near = difflib.get_close_matches(key, Variant.model_fields, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "env/README.md lists those that there are."
    return f"is not a key: {hint} Correct or remove the line"


def _accepted(detail: ErrorDetails) -> str:
    context: dict[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "literal_error":
            return f"write {context['expected']}"
        case "greater_than_equal":
            return f"at least {context['ge']}"
        case "less_than_equal":
            return f"at most {context['le']}"
        case _:
            return detail["msg"]
