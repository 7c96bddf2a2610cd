"""blocks: Guard 4, KV block integrity under concurrent prefill.

Several documents prefill in the same steps while another request decodes; then every KV block of
every document is asked for through the shared prefix cache. The answers that the documents' own
requests give stay right: the damage (finding 12) lies in a neighbour's block and comes later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from twinspark.guards.asking import BATCH, Asked, ask_many
from twinspark.guards.client import Plan
from twinspark.guards.context import BATTERIES, Guard
from twinspark.guards.load import decoding
from twinspark.guards.model import Check, shorten, verdict

if TYPE_CHECKING:
    from twinspark.guards.client import Client
    from twinspark.guards.context import Context
    from twinspark.guards.exam import Paper

SHARE: Final = 3  # prefills in one step: with two, the fault did not show in the main store
SIDECAR_TOKENS: Final = 400
LONG_TOKENS: Final = 44_000  # the first seed's documents
LONG_FACTS: Final = 90  # a document: 8 documents give 720 reads, the seed's run had 714
SYMBOL: Final = {"pass": ".", "wrong": "x", "soft": "s", "truncated": "t"}
# documents with a damaged block of those with shared blocks, first seed before its fix: the
# field's figures
SEED_DOSE: Final = {1: "0 of 1", 2: "0 of 2", 4: "3 of 4", 8: "6 of 7"}


@dataclass(frozen=True, slots=True)
class Shape:
    """One round.

    Attributes:
        name: `blocks.N`, or `blocks.long`.
        documents: Prefilled together.
        facts: Questions a document.
        stretch: Tokens a fact: the block size, or a multiple for long documents.
    """

    name: str
    documents: int
    facts: int
    stretch: int

    @property
    def tokens(self) -> int:
        """Length of a document."""
        return self.facts * self.stretch


def shapes(context: Context) -> list[Shape]:
    """The rounds of this depth: short documents that share steps, and long ones at full depth."""
    block, budget = context.block_size, context.settings.max_num_batched_tokens
    fits = min(budget // SHARE, context.context_tokens) // block
    short = [Shape(f"blocks.{n}", n, max(fits, 2), block) for n in context.depth.doses]
    if context.battery != "full":
        return short
    tokens = min(LONG_TOKENS, context.context_tokens // 2)
    if context.exam.exact:  # the lab's two cores: three steps a document show the same
        tokens = min(tokens, 3 * budget)
    stretch = max(math.ceil(tokens / LONG_FACTS / block), 1) * block
    return [*short, Shape("blocks.long", context.depth.documents, tokens // stretch, stretch)]


def run(context: Context) -> list[Check]:
    """All rounds, each with salts of its own."""
    with context.client() as client:
        fitted = replace(context, exam=context.exam.fitted(client))
        return [check for shape in shapes(context) for check in _round(fitted, client, shape)]


def _round(context: Context, client: Client, shape: Shape) -> list[Check]:
    seed = context.seed + 1000 * (1 + shape.documents) + shape.stretch
    papers = [
        context.exam.blocks(shape.facts, shape.stretch, seed + index)
        for index in range(shape.documents)
    ]
    salt = context.salt(shape.name)
    # one request with all prompts: the scheduler gets them together, the decode keeps steps going
    own = [paper.questions[len(paper.questions) // 2] for paper in papers]
    sidecar = context.exam.short(seed).prompt
    with decoding(client, sidecar, SIDECAR_TOKENS, f"{salt}-sidecar"):
        answered = ask_many(context, client, own, salt)  # BATCH is more than any round's documents
    right = sum(mark.ok for _, mark, _ in answered)
    read = [ask_many(context, client, paper.questions, salt) for paper in papers]
    return [
        verdict(
            f"{shape.name}.own", context.node, right == len(own), f"{len(own)} right",
            f"{right} right", "answers of the prefilling requests themselves",
        ),
        _readback(context, shape, papers, read),
    ]  # fmt: skip


def _readback(
    context: Context, shape: Shape, papers: list[Paper], read: list[list[Asked]]
) -> Check:
    block = context.block_size
    bad = [
        (document, question.position // block, mark)
        for document, asked in enumerate(read)
        for question, mark, _ in asked
        if not mark.ok
    ]
    total = sum(map(len, read))
    cached = sum(answer.cached_tokens or 0 for asked in read for _, _, answer in asked[::BATCH])
    where = [
        f"document {document} block {at}: {mark.outcome} {mark.got!r} lp {mark.logprob:.2g}"
        for document, at, mark in bad
    ]
    hurt = len({document for document, _, _ in bad})
    data: dict[str, Any] = {
        "documents": shape.documents, "tokens": papers[0].tokens, "stretch": shape.stretch,
        "map": ["".join(SYMBOL[mark.outcome] for _, mark, _ in asked) for asked in read],
        "bad": [[document, at, mark.got, mark.logprob] for document, at, mark in bad],
        "hurt": hurt, "cached_tokens": cached, "seed_dose": SEED_DOSE.get(shape.documents, ""),
    }  # fmt: skip
    return verdict(
        f"{shape.name}.readback", context.node, not bad, f"{total} blocks right",
        f"{total - len(bad)} right, {hurt} of {shape.documents} documents hurt",
        shorten(where, 3), data=data,
    )  # fmt: skip


def _plan(context: Context) -> Plan:
    total, longest = Plan(1, seconds=context.timeout), 0
    for shape in shapes(context):
        reads = shape.documents * shape.facts
        requests = 2 + shape.documents * math.ceil(shape.facts / BATCH)
        tokens = (reads + shape.documents) * (shape.tokens * 2 + 100) + 200
        total += Plan(requests, tokens, SIDECAR_TOKENS + (reads + shape.documents) * 8)
        longest = max(longest, shape.documents * shape.tokens)
    rounds = ", ".join(f"{s.documents} documents of {s.tokens} tokens" for s in shapes(context))
    what = f"{rounds}, prefilled together; every block read back from the cache"
    seconds = max(context.timeout, longest / 500)  # 500 tokens/s prefill is a floor, not a promise
    return Plan(total.requests, total.prompt_tokens, total.completion_tokens, seconds, what)


def _applies(context: Context) -> str:
    seats = context.settings.max_num_seqs
    return (
        "" if seats > SHARE else f"max-num-seqs {seats}: {SHARE} prefills and a decode never meet"
    )


GUARD = Guard(
    "blocks",
    "api",
    "Guard 4: KV blocks survive concurrent prefill",
    BATTERIES,
    run,
    _plan,
    _applies,
)
