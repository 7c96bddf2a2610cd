"""Prompts whose right answers are known exactly, for the lab's recall model and for real ones.

The recall model (built by hand, not trained) has one word a token and a fixed vocabulary: specials,
`k0..k1023` (keys), `v0..v1023` (values), `w0..w2032` (filler), `q0..q1023` (second names of the
keys). It continues a prompt with whatever followed the last two tokens earlier:

* `... k17 v93 ... k17` gives `v93`;
* `... k17 = v93 v5 . ... k17 =` gives `v93 v5 .`, and `.` ends it;
* `... k17 v93 ... q17` gives `v93` by two hops: layer 0's KV at `k17`, then layer 1's at `v93`;
* an absent key gives `?`.

The vocabulary constants here are what the model's builder imports: one definition for both.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

from pydantic import TypeAdapter, ValidationError

from twinspark.guards.model import first_error

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL: Final = (
    "<unk>", "<bos>", ".", "?", "=", ";", ":",
    "user", "assistant", "system", "The", "code", "of", "is", "and",
)  # fmt: skip
CODES: Final = 4096  # tokens with a code of their own: specials, keys, values, filler
KEYS: Final = 1024  # keys, and as many values and second names
K0: Final = len(SPECIAL)
V0: Final = K0 + KEYS
W0: Final = V0 + KEYS
FILLER: Final = CODES - W0
Q0: Final = CODES
VOCABULARY: Final = CODES + KEYS
BOS: Final = SPECIAL.index("<bos>")
EOS: Final = SPECIAL.index(".")
NONE: Final = SPECIAL.index("?")
EQ: Final = SPECIAL.index("=")

# What an intact engine gives, at every length up to 32,768 tokens. emulated: vLLM 0.27.1 CPU build,
# -5.65e-4 in float32, -5.7e-4 in bfloat16. The floor is the widest that still sees V x 0.98.
MARGIN_NATS: Final = 7.68  # logit(answer) - logit("?") = 64 g (2 alpha - 1.6), alpha = 1, g = 0.3
ANSWER_LOGPROB: Final = -5.65e-4
LOGPROB_FLOOR: Final = -7.0e-4
MARGIN_TOLERANCE_NATS: Final = 0.15
MAX_TOKENS: Final = 32768

ORACLE_FILE: Final = "twinspark-oracle.json"  # beside the checkpoint

Style = Literal["kv", "eq"]
_UNIT_OVERHEAD: Final[dict[Style, int]] = {"kv": 1, "eq": 3}


@dataclass(frozen=True, slots=True)
class Oracle:
    """Known figures of one recall checkpoint; the file beside it tells a guard that it is one.

    Attributes:
        margin_nats: logit(answer) - logit("?") of an intact engine.
        answer_logprob: Logprob of the right answer.
        logprob_floor: Below this the KV is damaged, even though the answer may be right.
        margin_tolerance_nats: Largest distance of a margin from `margin_nats`.
        max_tokens: Longest prompt for which the figures hold.
    """

    margin_nats: float = MARGIN_NATS
    answer_logprob: float = ANSWER_LOGPROB
    logprob_floor: float = LOGPROB_FLOOR
    margin_tolerance_nats: float = MARGIN_TOLERANCE_NATS
    max_tokens: int = MAX_TOKENS
    schema: Literal["twinspark.oracle/1"] = "twinspark.oracle/1"

    def to_json(self) -> str:
        """The text of `twinspark-oracle.json`."""
        return json.dumps(asdict(self), indent=2) + "\n"


def read_oracle(path: Path) -> Oracle:
    """Read `twinspark-oracle.json`; fields of others are left unread.

    Raises:
        OSError: There is no such file.
        ValueError: It is not an oracle of this schema; the text names the file.
    """
    body = path.read_bytes()
    try:
        oracle = TypeAdapter(Oracle).validate_json(body)
    except ValidationError as error:
        raise ValueError(f"{path}: not an oracle: {first_error(error)}") from error
    # the defaults are one checkpoint's figures: another's file must not borrow them
    absent = asdict(oracle).keys() - json.loads(body).keys()
    if absent:
        raise ValueError(f"{path}: not an oracle: without {', '.join(sorted(absent))}")
    return oracle


@dataclass(frozen=True, slots=True)
class Needle:
    """One key with its values, hidden in a document.

    Attributes:
        key: Token id of the key.
        values: Token ids that must follow it.
        position: Index of the key in the document, in tokens.
    """

    key: int
    values: tuple[int, ...]
    position: int

    def question(self, style: Style = "kv") -> list[int]:
        """The token ids that ask for this needle at the end of the document."""
        return [self.key, EQ] if style == "eq" else [self.key]

    def answer(self, style: Style = "kv") -> list[str]:
        """The words that an intact engine continues with."""
        words = [word(value) for value in self.values]
        return [*words, word(EOS)] if style == "eq" else words


@dataclass(frozen=True, slots=True)
class Document:
    """Token ids with their needles; `ids[0]` is always `<bos>`."""

    ids: list[int]
    needles: tuple[Needle, ...]


def word(token: int) -> str:
    """The word of one token id.

    Raises:
        ValueError: The id is outside the vocabulary.
    """
    if not 0 <= token < VOCABULARY:
        raise ValueError(f"token id {token} is outside the recall vocabulary of {VOCABULARY}")
    if token < K0:
        return SPECIAL[token]
    for start, letter in ((Q0, "q"), (W0, "w"), (V0, "v"), (K0, "k")):
        if token >= start:
            return f"{letter}{token - start}"
    raise AssertionError(token)  # unreachable: K0 is the last start


def vocabulary() -> list[str]:
    """All words in the order of their ids."""
    return [word(token) for token in range(VOCABULARY)]


def text(ids: list[int]) -> str:
    """The text whose tokenization is `ids`; the tokenizer itself puts `<bos>` in front.

    Raises:
        ValueError: `ids` does not begin with `<bos>`.
    """
    if not ids or ids[0] != BOS:
        raise ValueError("a recall prompt begins with <bos>: position 0 has no previous token")
    return " ".join(word(token) for token in ids[1:])


def second_name(key: int) -> int:
    """The q-token of a key: the same question through layer 0's KV (two hops)."""
    return key - K0 + Q0


def haystack(
    length: int, needles: int, seed: int, style: Style = "kv", value_length: int = 1
) -> Document:
    """Filler with needles at random places.

    Args:
        length: Tokens of the document, `<bos>` included.
        needles: Number of key/value pairs.
        seed: Same seed, same document.
        style: `kv` writes KEY VALUES, `eq` writes KEY = VALUES `.`.
        value_length: Values a needle.

    Raises:
        ValueError: The needles do not fit.
    """
    unit = _UNIT_OVERHEAD[style] + value_length
    places = (length - 1) // unit - 2
    if needles > places or needles * value_length > KEYS:
        raise ValueError(f"{needles} needles of {unit} tokens do not fit into {length} tokens")
    draw = random.Random(seed)  # noqa: S311 - repeatable prompts, no secret
    ids = [BOS, *(W0 + draw.randrange(FILLER) for _ in range(length - 1))]
    slots = sorted(draw.sample(range(1, places + 1), needles))
    keys = draw.sample(range(KEYS), needles)
    # all values distinct: a value that two needles share makes the copy after it ambiguous
    pool = iter(draw.sample(range(KEYS), needles * value_length))
    found = []
    for slot, key in zip(slots, keys, strict=True):
        values = tuple(V0 + next(pool) for _ in range(value_length))
        written = [K0 + key, *([EQ] if style == "eq" else []), *values]
        written += [EOS] if style == "eq" else []
        ids[slot * unit : slot * unit + len(written)] = written
        found.append(Needle(K0 + key, values, slot * unit))
    return Document(ids, tuple(found))


def block_context(blocks: int, block_size: int, seed: int) -> Document:
    """A document with one needle in every KV block, so that each block can be asked for.

    Key and value lie side by side inside the block, at a random offset. Needle `b` belongs to
    block `b`.

    Args:
        blocks: KV blocks of the document; at most 1024.
        block_size: Tokens a block.
        seed: Same seed, same document.

    Raises:
        ValueError: More blocks than keys, or a block too small for a pair after `<bos>`.
    """
    if blocks > KEYS or block_size < 3:
        raise ValueError(f"{blocks} blocks of {block_size} tokens: at most {KEYS}, of 3 or more")
    draw = random.Random(seed)  # noqa: S311 - repeatable prompts, no secret
    ids = [BOS, *(W0 + draw.randrange(FILLER) for _ in range(blocks * block_size - 1))]
    keys = draw.sample(range(KEYS), blocks)
    values = draw.sample(range(KEYS), blocks)
    found = []
    for block in range(blocks):
        offset = draw.randrange(2 if block == 0 else 1, block_size)
        at = block * block_size + offset
        key, value = K0 + keys[block], V0 + values[block]
        ids[at - 1], ids[at] = key, value
        found.append(Needle(key, (value,), at - 1))
    return Document(ids, tuple(found))
