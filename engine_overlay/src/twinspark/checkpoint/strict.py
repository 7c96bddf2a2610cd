"""Strict reading of small JSON files, and writing them whole."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from twinspark.checkpoint.errors import CannotRunError, CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_FILE = 16 * 2**20  # bytes; the real model's manifest is under 20 KB

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Reader:
    """Strict reading of foreign JSON objects: every complaint names the file and the field."""

    def __init__(self, where: str) -> None:
        self.where = where

    def fail(self, what: str) -> CheckpointError:
        """The error to raise for this document."""
        return CheckpointError(f"{self.where}: {what}")

    def mapping(self, value: object, name: str) -> dict[str, object]:
        """`value` as a JSON object."""
        if not isinstance(value, dict):
            raise self.fail(f"{name} is not an object")
        return value

    def text(self, holder: dict[str, object], key: str) -> str:
        """The string under `key`."""
        value = holder.get(key)
        if not isinstance(value, str):
            raise self.fail(f"`{key}` is missing or not a string")
        return value

    def count(self, holder: dict[str, object], key: str) -> int:
        """The non-negative integer under `key`."""
        value = holder.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.fail(f"`{key}` is missing or not a non-negative integer")
        return value

    def sha256(self, holder: dict[str, object], key: str) -> str:
        """The 64 lower-case hex digits under `key`."""
        value = self.text(holder, key)
        if not _SHA256.match(value):
            raise self.fail(f"`{key}` is not a SHA-256 in lower-case hex: {value[:80]!r}")
        return value

    def load(self, text: str | bytes) -> dict[str, object]:
        """The document as an object.

        Raises:
            CheckpointError: it is no JSON, repeats a key, or is nested beyond reason.
        """
        try:
            return self.mapping(
                json.loads(text, object_pairs_hook=self._unique, parse_constant=self._constant),
                "the document",
            )
        except UnicodeDecodeError as error:
            raise self.fail(f"is not UTF-8: {error}") from error
        except RecursionError as error:
            raise self.fail("is nested too deeply to be what it claims") from error
        except ValueError as error:
            raise self.fail(f"is not JSON: {error}") from error

    def _unique(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise self.fail(f"has the key {twice[:80]!r} twice")
        return found

    def _constant(self, name: str) -> object:
        raise self.fail(f"holds {name}, which JSON does not have")


def row(line: str, *types: type) -> list[Any] | None:
    """A line of JSON that is a list of exactly these types; None for any other.

    Our own records, line by line: what an interruption cut is worth nothing, and no error.
    """
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    fits = isinstance(values, list) and [type(value) for value in values] == list(types)
    return values if fits else None


def read_small(path: Path, limit: int = LARGEST_FILE) -> bytes:
    """The bytes of a small file.

    Raises:
        CannotRunError: it cannot be read.
        CheckpointError: it is larger than `limit` bytes.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except OSError as error:
        raise CannotRunError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > limit:
        raise CheckpointError(f"{path} is larger than {limit} bytes: it is not what its name says")
    return content


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` with `text` so that a reader never sees half a file."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    beside.chmod(0o644)
    beside.replace(path)
