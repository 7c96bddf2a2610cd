"""What is wrong with a variant, in words that name the file, the line and the way out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinspark.variant.schema import Variant


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        text: What is wrong and what to do.
        key: The key it is about, if it is about one.
        line: Line in the file, counted from 1, if it is in a line.
    """

    text: str
    key: str | None = None
    line: int | None = None


class VariantError(Exception):
    """A variant is refused.

    Attributes:
        source: The file, as the caller named it.
        problems: All that was found, in the file's order.
        variant: The variant, where its memory alone is refused and its plan can be shown.
    """

    def __init__(
        self, source: str, problems: Iterable[Problem], variant: Variant | None = None
    ) -> None:
        self.source = source
        self.variant = variant
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(self.lines()))

    def lines(self) -> tuple[str, ...]:
        """One line a problem: `FILE:LINE: KEY: text`."""
        return tuple(
            ": ".join(
                part
                for part in (
                    f"{self.source}:{problem.line}" if problem.line else self.source,
                    problem.key,
                    problem.text,
                )
                if part
            )
            for problem in self.problems
        )


class HostError(Exception):
    """The nodes' addresses, ranks or rails do not make a pair; the text says what to do."""
