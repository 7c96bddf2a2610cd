"""The lab's model answers as it must, in a forward pass written out from Llama's definition."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from lab import recall_model, recall_weights
from lab.recall_codes import kerdock, reed_muller
from twinspark.guards import recall

if TYPE_CHECKING:
    from pathlib import Path

LENGTH = 512


@dataclass(frozen=True)
class Llama:
    """A Llama forward in float64, MLPs left out (they are zero; a test looks)."""

    weights: dict[str, np.ndarray]

    @property
    def layers(self) -> int:
        return sum("q_proj" in name for name in self.weights)

    def __call__(self, ids: list[int], lost: float = 0.0) -> np.ndarray:
        """Log-probabilities `[vocabulary]` after the last token.

        `lost` is the share of every induction head's attention that goes to `<bos>` instead.
        """
        hidden = self.weights["model.embed_tokens.weight"][ids]
        for number in range(self.layers):
            norm = self.weights[f"model.layers.{number}.input_layernorm.weight"]
            hidden = hidden + self.attend(number, rms(hidden) * norm, lost if number else 0.0)
        logits = self.weights["lm_head.weight"] @ (
            rms(hidden[-1]) * self.weights["model.norm.weight"]
        )
        return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

    def attend(self, number: int, x: np.ndarray, lost: float) -> np.ndarray:
        q, k, v, o = (
            self.weights[f"model.layers.{number}.self_attn.{letter}_proj.weight"]
            for letter in "qkvo"
        )
        heads = []
        later = np.triu(np.ones((len(x), len(x)), dtype=bool), 1)
        for head in range(recall_weights.HEADS):
            own = slice(head * 128, head * 128 + 128)
            group = head * recall_weights.KV_HEADS // recall_weights.HEADS
            shared = slice(group * 128, group * 128 + 128)
            scores = turned(x @ q[own].T) @ turned(x @ k[shared].T).T / np.sqrt(128)
            scores[later] = -np.inf
            share = np.exp(scores - scores.max(axis=1, keepdims=True))
            share = (1 - lost) * share / share.sum(axis=1, keepdims=True)
            share[:, 0] += lost
            heads.append(share @ (x @ v[shared].T))
        return np.concatenate(heads, axis=1) @ o.T


def rms(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + recall_weights.EPSILON)


def turned(x: np.ndarray) -> np.ndarray:
    """RoPE on pairs (i, i + 64), as Llama has it."""
    angles = np.arange(len(x))[:, None] * (recall_weights.THETA ** (-np.arange(64) / 64))
    low, high = x[:, :64], x[:, 64:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=1)


def read(folder: Path) -> Llama:
    """The weights as stored; bfloat16 widened by hand, since numpy has no such type."""
    weights = {}
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + size + offset for offset in entry["data_offsets"])
        data = raw[start:end]
        if entry["dtype"] == "BF16":
            data = (np.frombuffer(data, "<u2").astype("<u4") << 16).tobytes()
        weights[name] = np.frombuffer(data, "<f4").reshape(entry["shape"]).astype(np.float64)
    return Llama(weights)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recall") / "model"
    recall_model.build(out)
    return out


@pytest.fixture(scope="module")
def model(folder: Path) -> Llama:
    return read(folder)


def best(logprobs: np.ndarray) -> str:
    return recall.word(int(logprobs.argmax()))


def test_kerdock__two_words_have_a_product_of_at_most_8():
    code = kerdock()
    products = code @ code.T
    assert code.shape == (4096, 64)
    assert (np.diag(products) == 64).all()
    np.fill_diagonal(products, -64)
    assert products.max() == 8


def test_reed_muller__two_words_have_a_product_of_at_most_16():
    code = reed_muller()
    products = code @ code.T
    assert code.shape == (4096, 32)
    np.fill_diagonal(products, -32)
    assert products.max() == 16


def test_embeddings__all_have_the_norm_that_layer_0_divides_out(model: Llama):
    squared = (model.weights["model.embed_tokens.weight"] ** 2).sum(axis=1)
    assert squared == pytest.approx(np.full(recall.VOCABULARY, recall_weights.EMBEDDED))


def test_mlp__adds_nothing(model: Llama):
    down = [weight for name, weight in model.weights.items() if "down_proj" in name]
    assert down
    assert not any(weight.any() for weight in down)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_needles__are_found_with_the_known_margin(tmp_path: Path, dtype: recall_model.Dtype):
    recall_model.build(tmp_path / "model", dtype=dtype)
    model = read(tmp_path / "model")
    document = recall.haystack(LENGTH, 6, seed=3)
    for needle in document.needles:
        logprobs = model(document.ids + needle.question())
        assert best(logprobs) == needle.answer()[0]
        assert logprobs.max() == pytest.approx(recall.ANSWER_LOGPROB, abs=2e-5)
        margin = logprobs.max() - logprobs[recall.NONE]
        assert margin == pytest.approx(recall.MARGIN_NATS, abs=recall.MARGIN_TOLERANCE_NATS / 3)


def test_needles__of_several_tokens_are_copied_to_the_stop(model: Llama):
    document = recall.haystack(LENGTH, 4, seed=4, style="eq", value_length=3)
    needle = document.needles[2]
    ids = document.ids + needle.question("eq")
    said = []
    while len(said) < 4:
        ids = [*ids, int(model(ids).argmax())]
        said.append(recall.word(ids[-1]))
    assert said == needle.answer("eq")


def test_second_name__finds_the_key_in_layer_0(model: Llama):
    document = recall.haystack(LENGTH, 6, seed=5)
    needle = document.needles[1]
    logprobs = model([*document.ids, recall.second_name(needle.key)])
    assert best(logprobs) == needle.answer()[0]
    assert logprobs.max() >= recall.LOGPROB_FLOOR


def test_absent_key__is_answered_with_a_question_mark(model: Llama):
    document = recall.haystack(LENGTH, 6, seed=6)
    present = {needle.key for needle in document.needles}
    absent = next(key for key in range(recall.K0, recall.V0) if key not in present)
    assert best(model([*document.ids, absent])) == "?"


@pytest.mark.parametrize(("lost", "answer_survives"), [(0.02, True), (0.25, False)])
def test_margin__measures_attention_that_went_astray(
    model: Llama, lost: float, answer_survives: bool
):
    document = recall.haystack(LENGTH, 6, seed=7)
    needle = document.needles[0]
    logprobs = model(document.ids + needle.question(), lost=lost)
    answer = next(iter(needle.values))
    margin = logprobs[answer] - logprobs[recall.NONE]
    # the last norm is made for an intact answer: `out` and `none` have 64 in all then
    norm = recall_weights.EMBEDDED + recall_weights.OFFSET_ADDED
    stretch = np.sqrt((norm + 64) / (norm + 64 * ((1 - lost) ** 2 + lost**2)))
    assert margin == pytest.approx(stretch * 64 * 0.3 * (2 * (1 - lost) - 1.6), rel=1e-3)
    assert (best(logprobs) == needle.answer()[0]) is answer_survives
    assert logprobs[answer] < recall.LOGPROB_FLOOR


def test_four_layers__share_the_answer_at_the_same_sharpness(tmp_path: Path):
    recall_model.build(tmp_path / "model", layers=4, max_tokens=4096)
    model = read(tmp_path / "model")
    document = recall.haystack(LENGTH, 3, seed=8)
    for needle in document.needles:
        logprobs = model(document.ids + needle.question())
        assert best(logprobs) == needle.answer()[0]
        assert logprobs.max() == pytest.approx(recall.ANSWER_LOGPROB, abs=1e-5)


def test_tokenizer__gives_the_ids_of_the_text_with_bos_in_front(folder: Path):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = recall.haystack(64, 4, seed=9).ids
    assert tokenizer.encode(recall.text(ids)).ids == ids


def test_build__same_bytes_every_time(folder: Path, tmp_path: Path):
    recall_model.build(tmp_path / "again")
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "again").iterdir())
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_build__files_say_what_they_are(folder: Path):
    assert recall.read_oracle(folder / recall.ORACLE_FILE) == recall.Oracle()
    config = json.loads((folder / "config.json").read_text())
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        shape = file.get_slice("model.embed_tokens.weight").get_shape()
    assert shape == [config["vocab_size"], config["hidden_size"]]


def test_tensors__refuse_a_length_at_which_rope_blurs_content():
    with pytest.raises(ValueError, match="turn by more than"):
        recall_weights.tensors(max_tokens=1_000_000)


def test_tensors__refuse_a_single_layer():
    with pytest.raises(ValueError, match="at least 2 layers"):
        recall_weights.tensors(layers=1)
