"""The lab model's weights, set by hand: a Llama that recalls exactly, so right answers are known.

Nothing is trained. The next token is the one that followed the best earlier match of the last two
tokens; a match of both beats a match of the last alone, and no match gives "?" (the prompts that
this answers are in `twinspark.guards.recall`, with the vocabulary). It is a stock
`LlamaForCausalLM`: four query heads on two KV heads of 128, MLPs zero, and every number follows
from the layout below.

* A token is a pair of code words (`recall_codes`): A of length 64, B of length 32.
* Layer 0, KV head 0 has a constant key that only RoPE turns: query head 0 looks one position back
  and writes that token's A and B into `prev1`; query head 1 looks two back, and B goes to `prev2`.
* Layer 0, KV head 1 finds the key token that a q-token names and moves its code into `tok`; any
  other token looks at the sink.
* Every later layer is an induction layer: query (A of tok, B of prev1), key (A of prev1, B of
  prev2), value A of tok. Each head adds its share of the answer to `out`; attention to the sink
  adds to `none`.
* `<bos>` is the sink: position 0 has no previous token, so every prompt begins with it.
* logit(t) = g <A(t), out>, logit("?") = 64 g (0.6 + none). If a share 1 - alpha of the attention
  goes astray, logit(answer) - logit("?") = 64 g (2 alpha - 1.6): 7.68 when intact, and a gauge
  when not.
* RoPE's base is 1e25: pairs 0..11 turn fast (they tell offsets), pairs 15..63 stand still for 32K
  positions (they carry content).
* All tokens (but the sink) have the same norm at every layer, so the RMSNorm weights divide it out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lab.recall_codes import kerdock, reed_muller, shuffled
from twinspark.guards import recall

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

HEAD: Final = 128  # head_dim
HEADS: Final = 4
KV_HEADS: Final = 2
HIDDEN: Final = 384
MLP: Final = 64
EPSILON: Final = 1e-6
THETA: Final = 1e25
GAIN: Final = 0.3  # g of the logits
ABSENT: Final = 0.6  # share of a full match that "?" is worth without any

# Rotary pairs are (i, i + 64). 12 of the fast ones tell offsets, one still one carries the sink and
# 48 the code words: B in pairs 16..31, A in pairs 32..63.
FREQUENCIES: Final = THETA ** (-np.arange(HEAD // 2) / (HEAD // 2))  # radians a position
OFFSET_PAIRS: Final = 12
SINK_PAIR: Final = 15
DIMS_B: Final = [*range(16, 32), *range(80, 96)]
DIMS_A: Final = [*range(32, 64), *range(96, 128)]

# Residual stream. A q-token's `tok` is empty and its key's code lies in `name`.
TOK_A: Final = slice(0, 64)
TOK_B: Final = slice(64, 96)
NAME_A: Final = slice(96, 160)
PREV1_A: Final = slice(160, 224)
PREV1_B: Final = slice(224, 256)
PREV2_B: Final = slice(256, 288)
OUT_A: Final = slice(288, 352)
CONSTANT: Final = 352
SINK: Final = 353  # 8 at <bos>, 0 elsewhere
NONE: Final = 354  # how much attention went to the sink
CONSTANT_VALUE: Final = 16.0
SINK_VALUE: Final = 8.0

EMBEDDED: Final = 64 + 32 + CONSTANT_VALUE**2  # squared norm of every embedding
OFFSET_ADDED: Final = 64 + 32 + 32  # what layer 0 adds to it

# Attention scores, before the softmax; neighbours in this order are at least 14 apart.
MATCH_PREV: Final = (
    1.5  # a score of 32 times this: a bigram match beats one of the last token alone
)
MATCH_CUR: Final = (64 * MATCH_PREV + 28) / 56  # 64 times this, if the last token matches
INDUCTION_SINK: Final = 36 * MATCH_CUR  # below a match of the last token, above one of the previous
MATCH_NAME: Final = 1.0  # layer 0's look-up: 64 for the named key, at most 8 for any other token
NAME_SINK: Final = 36.0
OFFSET_LEAD: Final = 30.0  # the right offset's score over that of any other


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's four projections, `[heads * 128, hidden]` and o `[hidden, heads * 128]`."""

    q: Array
    k: Array
    v: Array
    o: Array

    @classmethod
    def zeros(cls) -> Attention:
        """A layer that adds nothing."""
        queries, keys = HEADS * HEAD, KV_HEADS * HEAD
        return cls(
            np.zeros((queries, HIDDEN)),
            np.zeros((keys, HIDDEN)),
            np.zeros((keys, HIDDEN)),
            np.zeros((HIDDEN, queries)),
        )


def root(score: float) -> float:
    """What query and key are each multiplied by for a score of `score` after q.k / sqrt(128)."""
    return math.sqrt(score * math.sqrt(HEAD))


def dims(head: int, within: list[int]) -> list[int]:
    """Rows of a projection that are these dimensions of one head."""
    return [head * HEAD + dim for dim in within]


def embeddings(code_a: Array, code_b: Array) -> Array:
    """`[vocabulary, hidden]`: every row has the squared norm `EMBEDDED`."""
    table = np.zeros((recall.VOCABULARY, HIDDEN))
    keys = slice(recall.K0, recall.K0 + recall.KEYS)
    table[: recall.CODES, TOK_A] = code_a
    table[: recall.CODES, TOK_B] = code_b
    table[:, CONSTANT] = CONSTANT_VALUE
    table[recall.BOS, TOK_A] = 0
    table[recall.BOS, SINK] = SINK_VALUE
    table[recall.Q0 :, NAME_A] = code_a[keys]
    table[recall.Q0 :, TOK_B] = code_b[keys][:, ::-1]  # any word of B will do
    return table


def offset_score(max_tokens: int) -> float:
    """Score of one offset pair, so that the right offset leads every other by `OFFSET_LEAD`.

    Raises:
        ValueError: At this length the content pairs turn too far.
    """
    if FREQUENCIES[DIMS_B[0]] * max_tokens >= 0.05:
        raise ValueError(f"{max_tokens} tokens: the content pairs turn by more than 0.05 radian")
    angles = np.arange(1, max_tokens)[:, None] * FREQUENCIES[None, :OFFSET_PAIRS]
    return float(OFFSET_LEAD / (1 - np.cos(angles)).sum(axis=1).min())


def offset_layer(max_tokens: int) -> Attention:
    """Layer 0: what stood one and two positions back, and the key that a q-token names."""
    layer = Attention.zeros()
    scale = root(offset_score(max_tokens)) / CONSTANT_VALUE
    for head, back in ((0, 1), (1, 2)):
        angles = FREQUENCIES[:OFFSET_PAIRS] * back
        first = head * HEAD
        layer.q[first : first + OFFSET_PAIRS, CONSTANT] = scale * np.cos(angles)
        layer.q[first + 64 : first + 64 + OFFSET_PAIRS, CONSTANT] = -scale * np.sin(angles)
    layer.k[:OFFSET_PAIRS, CONSTANT] = scale
    layer.v[0:64, TOK_A] = np.eye(64)
    layer.v[64:96, TOK_B] = np.eye(32)
    layer.o[PREV1_A, 0:64] = np.eye(64)
    layer.o[PREV1_B, 64:96] = np.eye(32)
    layer.o[PREV2_B, HEAD + 64 : HEAD + 96] = np.eye(32)

    for head in (2, 3):  # the look-up, half of it by each
        layer.q[dims(head, DIMS_A), NAME_A] = root(MATCH_NAME) * np.eye(64)
        layer.q[head * HEAD + SINK_PAIR, CONSTANT] = root(NAME_SINK) / CONSTANT_VALUE
        found = slice(head * HEAD, head * HEAD + 64)
        layer.o[TOK_A, found] = np.eye(64) / 2
        layer.o[NAME_A, found] = -np.eye(64) / 2
    layer.k[dims(1, DIMS_A), TOK_A] = root(MATCH_NAME) * np.eye(64)
    layer.k[HEAD + SINK_PAIR, SINK] = root(NAME_SINK) / SINK_VALUE
    layer.v[HEAD : HEAD + 64, TOK_A] = np.eye(64)
    return layer


def induction_layer(share: float, squared_norm: float) -> Attention:
    """A later layer.

    Args:
        share: What each of its heads adds of the answer.
        squared_norm: Of every token here but `<bos>`, which lacks the A of a previous token and so
            comes out of the norm larger.
    """
    sink = SINK_VALUE * math.sqrt(squared_norm / (squared_norm - 64))
    layer = Attention.zeros()
    for head in range(HEADS):
        layer.q[dims(head, DIMS_A), TOK_A] = root(MATCH_CUR) * np.eye(64)
        layer.q[dims(head, DIMS_B), PREV1_B] = root(MATCH_PREV) * np.eye(32)
        layer.q[head * HEAD + SINK_PAIR, CONSTANT] = root(INDUCTION_SINK) / CONSTANT_VALUE
        layer.o[OUT_A, head * HEAD : head * HEAD + 64] = share * np.eye(64)
        layer.o[NONE, head * HEAD + 64] = share * SINK_VALUE
    for head in range(KV_HEADS):
        layer.k[dims(head, DIMS_A), PREV1_A] = root(MATCH_CUR) * np.eye(64)
        layer.k[dims(head, DIMS_B), PREV2_B] = root(MATCH_PREV) * np.eye(32)
        layer.k[head * HEAD + SINK_PAIR, SINK] = root(INDUCTION_SINK) / sink
        layer.v[head * HEAD : head * HEAD + 64, TOK_A] = np.eye(64)
        layer.v[head * HEAD + 64, SINK] = 1 / sink
    return layer


def logits_head(code_a: Array) -> Array:
    """`[vocabulary, hidden]`: a q-token is never an answer, and neither is `<bos>`."""
    table = np.zeros((recall.VOCABULARY, HIDDEN))
    table[: recall.CODES, OUT_A] = GAIN * code_a
    table[[recall.BOS, recall.NONE]] = 0
    table[recall.NONE, CONSTANT] = ABSENT * GAIN * 64 / CONSTANT_VALUE
    table[recall.NONE, NONE] = GAIN * 64 / SINK_VALUE
    return table


def norm_weight(squared_norm: float) -> Array:
    """RMSNorm's weight `[hidden]` that gives a vector of this squared norm back as it was."""
    return np.full(HIDDEN, math.sqrt(squared_norm / HIDDEN))


def tensors(layers: int = 2, max_tokens: int = recall.MAX_TOKENS) -> dict[str, Array]:
    """All weights in float64, by their names in the checkpoint.

    Args:
        layers: One offset layer and `layers - 1` induction layers, which share the answer.
        max_tokens: Longest prompt.

    Raises:
        ValueError: Fewer than two layers, or a length at which RoPE would blur the content.
    """
    if layers < 2:
        raise ValueError("a recall model has at least 2 layers")
    code_a, code_b = shuffled(kerdock(), seed=0), shuffled(reed_muller(), seed=1)
    weights = {"model.embed_tokens.weight": embeddings(code_a, code_b)}
    induction = layers - 1
    for number in range(layers):
        if number == 0:
            squared = EMBEDDED
            layer = offset_layer(max_tokens)
        else:  # what the layers before have put into `out` or `none` counts too
            squared = EMBEDDED + OFFSET_ADDED + 64 * ((number - 1) / induction) ** 2
            layer = induction_layer(1 / (HEADS * induction), squared)
        prefix = f"model.layers.{number}."
        for letter in "qkvo":
            weights[f"{prefix}self_attn.{letter}_proj.weight"] = getattr(layer, letter)
        weights[f"{prefix}input_layernorm.weight"] = norm_weight(squared)
        weights[f"{prefix}post_attention_layernorm.weight"] = np.ones(HIDDEN)
        weights[f"{prefix}mlp.gate_proj.weight"] = np.zeros((MLP, HIDDEN))
        weights[f"{prefix}mlp.up_proj.weight"] = np.zeros((MLP, HIDDEN))
        weights[f"{prefix}mlp.down_proj.weight"] = np.zeros((HIDDEN, MLP))
    weights["model.norm.weight"] = norm_weight(EMBEDDED + OFFSET_ADDED + 64)
    weights["lm_head.weight"] = logits_head(code_a)
    return weights
