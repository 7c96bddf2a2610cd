r"""The strict reader of env files.

A line is blank, `# comment` from column 0, or `KEY=VALUE`. KEY is `[A-Z][A-Z0-9_]*`; VALUE is bare
`[A-Za-z0-9_./:,@%+=-]*` or single-quoted without `'`, `$`, backslash and anything that is not
printable. There is no export, no comment behind a value, no expansion and no second assignment. In
this subset bash, systemd's `EnvironmentFile=` and python-dotenv (`interpolate=False`) read the same
bytes: tests/env proves it against all three.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinspark.variant.errors import Problem, VariantError

if TYPE_CHECKING:
    from pathlib import Path

KEY = re.compile(r"[A-Z][A-Z0-9_]*")
BARE = re.compile(r"[A-Za-z0-9_./:,@%+=-]*")
_ASSIGNMENT = re.compile(r"(?P<key>[^=]*)=(?P<value>.*)")

# Names that bash keeps for itself: some cannot be assigned, others change when they are read.
_SHELL_OWNED = re.compile(
    r"BASH.*|COMP_.*|HIST.*|DIRSTACK|EPOCH.*|EUID|FUNCNAME|FUNCNEST|GROUPS|IFS|LC_.*|LANG|LINENO|OPTIND|POSIXLY_CORRECT"
    r"|PPID|PWD|OLDPWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|TMOUT|UID|LD_.*"
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `KEY=VALUE` of a file, with the line it stands in (from 1)."""

    key: str
    value: str
    line: int


def parse(text: str, source: str) -> tuple[Assignment, ...]:
    """Read an env file's text.

    Args:
        text: The whole file.
        source: Its name, for messages.

    Raises:
        VariantError: A line is outside the grammar, or a key comes twice; all such lines are named.
    """
    if whole := _encoding_problem(text):
        raise VariantError(source, [whole])
    assignments: dict[str, Assignment] = {}
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip(" \t"):
            continue
        if line.startswith("#"):
            if problem := _comment_problem(line):
                problems.append(Problem(problem, line=number))
            continue
        found = _assignment(line, number)
        if isinstance(found, Problem):
            problems.append(found)
        elif found.key in assignments:
            first = assignments[found.key].line
            problems.append(
                Problem(f"already set in line {first}: keep one of the two", found.key, number)
            )
        else:
            assignments[found.key] = found
    if problems:
        raise VariantError(source, problems)
    return tuple(assignments.values())


def read(path: Path) -> tuple[Assignment, ...]:
    """Read an env file.

    Raises:
        VariantError: It cannot be read, is not UTF-8, or `parse` refuses it.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise VariantError(
            str(path), [Problem(f"cannot be read: {error.strerror or error}")]
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise VariantError(
            str(path), [Problem("is not UTF-8 here: save the file as UTF-8", line=line)]
        ) from error
    return parse(text, str(path))


def quote(value: str) -> str:
    """A value as it stands in an env file: bare where the grammar allows it, else single-quoted.

    Raises:
        ValueError: The value cannot be written so that every reader agrees on it.
    """
    if BARE.fullmatch(value):
        return value
    if problem := _quoted_problem(value):
        raise ValueError(f"{value!r} {problem}")
    return f"'{value}'"


def _encoding_problem(text: str) -> Problem | None:
    """What an editor did to the whole file: said once, not once a line."""
    found = []
    if text.startswith("\ufeff"):
        found.append("a byte order mark at its start")
    if text.count("\r\n") > 1:
        found.append("Windows line ends (CRLF)")
    if not found:
        return None
    return Problem(f"has {' and '.join(found)}: save it as UTF-8 without BOM, with LF line ends")


def _assignment(line: str, number: int) -> Assignment | Problem:
    match = _ASSIGNMENT.fullmatch(line)
    if match is None:
        return Problem(
            f"neither a comment nor KEY=VALUE: {_shown(line)}; write '# ' in front of a comment",
            line=number,
        )
    key, raw = match["key"], match["value"]
    if not KEY.fullmatch(key):
        return Problem(f"{_shown(key)} is not a key: {_key_advice(key)}", line=number)
    if _SHELL_OWNED.fullmatch(key):
        return Problem(
            "the shell or the loader keeps this name for itself: no reader agrees on it; remove "
            "the line",
            key,
            number,
        )
    problem, value = _value(raw)
    return Problem(problem, key, number) if problem else Assignment(key, value, number)


def _value(raw: str) -> tuple[str | None, str]:
    """What is wrong with a value as written, or else what it says."""
    if BARE.fullmatch(raw):
        return None, raw
    if len(raw) >= 2 and raw[0] == raw[-1] == "'":
        return _quoted_problem(raw[1:-1]), raw[1:-1]
    return _value_advice(raw), ""


def _comment_problem(line: str) -> str | None:
    if line.endswith("\\"):
        return (
            "a comment that ends with a backslash swallows the next line for systemd: remove "
            "the backslash"
        )
    if not line.replace("\t", " ").isprintable():
        return "a character in this comment is not printable (a carriage return?): remove it"
    return None


def _quoted_problem(value: str) -> str | None:
    for character, name in (("'", "a single quote"), ("$", "a dollar sign"), ("\\", "a backslash")):
        if character in value:
            return (
                f"holds {name}, which bash, systemd and dotenv read differently: write the "
                "value without it"
            )
    if not value.isprintable():
        return "holds a character that is not printable (a tab, a carriage return?): remove it"
    return None


def _key_advice(key: str) -> str:
    if key.startswith("export "):
        return "write KEY=VALUE without export"
    if key != key.strip():
        return "no blanks around the key or the equals sign"
    return "capital letters, digits and underscores, a letter first"


def _value_advice(raw: str) -> str:
    if raw.startswith('"'):
        return "double quotes mean something else to each reader: use single quotes"
    if raw.startswith("'"):
        return "a single-quoted value ends with its quote, and nothing follows it (no comment)"
    if raw[:1] in {" ", "\t"}:
        return "no blanks around the equals sign"
    if " #" in raw:
        return "no comment behind a value: give it a line of its own"
    return (
        f"{_shown(raw)} has characters that need single quotes, or must go: bare values hold "
        "A-Z a-z 0-9 _./:,@%+=-"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
