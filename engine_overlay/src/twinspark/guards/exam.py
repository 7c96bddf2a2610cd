"""Questions, and how answers are judged: exact for the recall model, by content for others."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from twinspark.guards import recall
from twinspark.guards.client import ForeignError, RefusedError

if TYPE_CHECKING:
    from twinspark.guards.client import Client, Prompt
    from twinspark.guards.wire import Completion

Outcome = Literal["pass", "wrong", "truncated", "soft"]
# a sharp answer of a real model: the first seed's good probes read lp -0.000, its bad -0.74, -1.49
SHARP_LOGPROB: Final = -0.10
SHARP_MARGIN_NATS: Final = 1.0
SHORT_TOKENS: Final = 38


@dataclass(frozen=True, slots=True)
class Question:
    """One question with its known answer.

    Attributes:
        prompt: The whole prompt, document included.
        expected: The answer.
        max_tokens: Tokens that the answer may take.
        position: Where in the document the answer stands, in tokens (estimated for text).
        stop: Text that ends the answer.
    """

    prompt: Prompt
    expected: str
    max_tokens: int
    position: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Paper:
    """A document and the questions on it; all questions share the document as their prefix.

    Attributes:
        document: The prefix alone.
        tokens: Its length, in tokens (estimated for text).
        questions: In document order.
    """

    document: Prompt
    tokens: int
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """The judgement of one answer.

    Attributes:
        outcome: `soft` = the right word, but not as sharp as an intact server gives it.
        got: What came.
        logprob: Of the answer's worst token, nats.
        margin: Smallest distance to the best rival, nats.
    """

    outcome: Outcome
    got: str
    logprob: float
    margin: float

    @property
    def ok(self) -> bool:
        """Whether it is right and sharp."""
        return self.outcome == "pass"


class Exam(Protocol):
    """A way to ask and to judge."""

    exact: bool

    def short(self, seed: int) -> Question:
        """A question of at most 40 tokens with its document: bit-exact on every engine seen."""

    def needles(self, length: int, count: int, seed: int) -> Paper:
        """A document of about `length` tokens with `count` facts at random places."""

    def blocks(self, blocks: int, block_size: int, seed: int) -> Paper:
        """A document with one fact in every KV block."""

    def mark(self, question: Question, answer: Completion) -> Mark:
        """Judge an answer."""

    def fitted(self, client: Client) -> Exam:
        """The same exam with lengths measured by the server's tokenizer; at most one request."""


class RecallExam:
    """The lab's model: every answer and its margin are known.

    Args:
        oracle: Known figures of the served checkpoint.
    """

    exact = True

    def __init__(self, oracle: recall.Oracle) -> None:
        self.oracle = oracle

    def short(self, seed: int) -> Question:
        """One pair among 38 tokens."""
        return self.needles(SHORT_TOKENS, 1, seed).questions[0]

    def needles(self, length: int, count: int, seed: int) -> Paper:
        """Key and value side by side; asked by the key."""
        document = recall.haystack(length, count, seed)
        return self._paper(document, [needle.key for needle in document.needles])

    def blocks(self, blocks: int, block_size: int, seed: int) -> Paper:
        """Asked by the second name, which reads layer 0's KV too: asking by the key misses it."""
        document = recall.block_context(blocks, block_size, seed)
        return self._paper(document, [recall.second_name(n.key) for n in document.needles])

    def fitted(self, client: Client) -> RecallExam:  # noqa: ARG002 - one word is one token
        """Nothing to measure."""
        return self

    def copies(self, length: int, count: int, seed: int, values: int = 30) -> Paper:
        """Answers of many tokens: the values of a key, in order, until `.` ends them."""
        document = recall.haystack(length, count, seed, "eq", values)
        questions = tuple(
            Question(
                [*document.ids, *needle.question("eq")], " ".join(needle.answer("eq")[:-1]),
                values + 2, needle.position, (".",),
            )
            for needle in document.needles
        )  # fmt: skip
        return Paper(document.ids, length, questions)

    def mark(self, question: Question, answer: Completion) -> Mark:
        """All words right and each logprob at least the oracle's floor; cut is not wrong."""
        got = answer.text.strip().removesuffix(" .")
        logprob = min(answer.logprobs, default=math.nan)
        margin = min(answer.margins, default=math.nan)
        if got != question.expected:
            words, whole = got.split(), question.expected.split()
            begun = len(words) < len(whole) and words == whole[: len(words)]
            cut = answer.truncated and begun
            return Mark("truncated" if cut else "wrong", got, logprob, margin)
        # written so that NaN is soft
        sharp = logprob >= self.oracle.logprob_floor
        return Mark("pass" if sharp else "soft", got, logprob, margin)

    @staticmethod
    def _paper(document: recall.Document, asked: list[int]) -> Paper:
        questions = tuple(
            Question([*document.ids, token], recall.word(needle.values[0]), 1, needle.position)
            for token, needle in zip(asked, document.needles, strict=True)
        )
        return Paper(document.ids, len(document.ids), questions)


_PLACES: Final = (
    "harbour", "orchard", "quarry", "library", "foundry", "observatory", "mill", "station",
    "archive", "greenhouse", "lighthouse", "workshop", "reservoir", "chapel", "depot", "bakery",
)  # fmt: skip
_FILLER: Final = (
    "The path along the river was dry again by the afternoon.",
    "Two of the older clerks had gone home before the rain began.",
    "A cart with empty crates stood for a week beside the gate.",
    "Nobody could say who had ordered the blue paint.",
    "The minutes of the meeting were copied out by hand and filed.",
    "In spring the windows on the north side are cleaned twice.",
    "The clock above the door is four minutes fast and always was.",
    "A box of spare keys lies in the lower drawer of the desk.",
)
CHARACTERS_A_TOKEN: Final = 4.4  # a rough estimate, until `fitted` measures it
PLAUSIBLE: Final = (0.5, 8.0)  # characters a token: one of bytes has 1, one of whole words 6
SAMPLE_TOKENS: Final = 2000


class ContentExam:
    """A real model: the answer is judged by what it says, and sharpness by a wide threshold.

    Facts are entries of a register; the question repeats an entry's beginning, so that any
    language model continues it from the document. Plain completions: no template, no thinking.

    Args:
        characters_a_token: Of such a text, on the served tokenizer.
    """

    exact = False

    def __init__(self, characters_a_token: float = CHARACTERS_A_TOKEN) -> None:
        self.characters_a_token = characters_a_token

    def fitted(self, client: Client) -> ContentExam:
        """Measure characters a token on a sample; a server without `/tokenize` is estimated.

        Raises:
            ForeignError: No tokenizer makes so many, or so few, tokens of the sample.
        """
        sample = str(self.needles(SAMPLE_TOKENS, 5, 1).document)
        try:
            count = len(client.tokenize(sample))
        except RefusedError:
            return self
        low, high = PLAUSIBLE
        if not low <= len(sample) / count <= high:
            raise ForeignError(f"/tokenize: {count} tokens for {len(sample)} characters of English")
        return ContentExam(len(sample) / count)

    def short(self, seed: int) -> Question:
        """One entry without filler; the question repeats most of it."""
        return self.needles(SHORT_TOKENS // 3, 1, seed).questions[0]

    def needles(self, length: int, count: int, seed: int) -> Paper:
        """Facts spread evenly, with jitter."""
        return self._paper(length, count, seed)

    def blocks(self, blocks: int, block_size: int, seed: int) -> Paper:
        """One fact about every `block_size` tokens."""
        return self._paper(blocks * block_size, blocks, seed)

    def mark(self, question: Question, answer: Completion) -> Mark:
        """The first number of the answer decides; cut inside that number is truncated."""
        logprob = min(answer.logprobs, default=math.nan)
        margin = min(answer.margins, default=math.nan)
        found = re.search(r"\d+", answer.text)
        got = found[0] if found else answer.text.strip()[:40]
        if got != question.expected:
            cut = answer.truncated and question.expected.startswith(found[0] if found else "")
            return Mark("truncated" if cut else "wrong", got, logprob, margin)
        # a chat that thinks is asked without logprobs: then the content alone decides
        sharp = math.isnan(logprob) or logprob >= SHARP_LOGPROB
        sharp &= math.isnan(margin) or margin >= SHARP_MARGIN_NATS
        return Mark("pass" if sharp else "soft", got, logprob, margin)

    def _paper(self, length: int, count: int, seed: int) -> Paper:
        draw = random.Random(seed)  # noqa: S311 - repeatable prompts, no secret
        numbers = draw.sample(range(100, 100 + 20 * max(count, 50)), count)
        codes = draw.sample(range(10_000, 99_999), count)
        parts, facts = ["Register of stored items.\n"], []
        share = length * self.characters_a_token / count
        size = len(parts[0])
        for index, (number, code) in enumerate(zip(numbers, codes, strict=True)):
            asked = f"Entry {number}, kept in the {draw.choice(_PLACES)}: the code is"
            before = draw.randrange(max(int(share * 0.7), 1))
            lines = [f"{asked} {code}.\n"]
            while size + sum(map(len, lines)) < (index + 1) * share:
                filler = draw.choice(_FILLER) + "\n"
                lines.insert(0 if sum(map(len, lines)) < before else len(lines), filler)
            facts.append(
                (asked, code, size + sum(map(len, lines[: lines.index(f"{asked} {code}.\n")])))
            )
            parts += lines
            size += sum(map(len, lines))
        document = "".join(parts)
        tokens = round(len(document) / self.characters_a_token)
        questions = tuple(
            Question(
                f"{document}\nRepeated: {asked}", str(code), 8, at * tokens // len(document), (".",)
            )
            for asked, code, at in facts
        )
        return Paper(document, tokens, questions)
