"""Write the lab's recall model as a checkpoint folder; the same arguments give the same bytes.

    PYTHONPATH=tests python -m lab.recall_model OUT [--layers 2] [--dtype float32|bfloat16]

One word is one token, and the tokenizer puts `<bos>` in front. `twinspark-oracle.json` tells a
guard that the right answers of this checkpoint are known, and how sharply.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tokenizers import Tokenizer, models, pre_tokenizers, processors

from lab import recall_weights
from twinspark.guards import recall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lab.recall_weights import Array

Dtype = Literal["float32", "bfloat16"]
DTYPES: Final[dict[Dtype, str]] = {"float32": "F32", "bfloat16": "BF16"}  # in a file's header

# Chat: the messages' text and nothing after it, so that the model goes on from the last words.
CHAT_TEMPLATE: Final = "<bos>{% for m in messages %} {{ m['content'] }}{% endfor %}"


def stored(weight: Array, dtype: Dtype) -> bytes:
    """One tensor's bytes, little-endian; bfloat16 is rounded to nearest, ties to even."""
    single = weight.astype("<f4")
    if dtype == "float32":
        return single.tobytes()
    bits = single.view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return bytes(rounded.astype("<u2").tobytes())


def safetensors(weights: Mapping[str, Array], dtype: Dtype) -> bytes:
    """A safetensors file: header length (8 bytes, little-endian), JSON header, data.

    Written here because the package's own writer takes no bfloat16 from numpy.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blocks: list[bytes] = []
    end = 0
    for name, weight in sorted(weights.items()):
        blocks.append(stored(weight, dtype))
        start, end = end, end + len(blocks[-1])
        header[name] = {
            "dtype": DTYPES[dtype],
            "shape": list(weight.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # data begins at a multiple of 8
    return len(text).to_bytes(8, "little") + text + b"".join(blocks)


def config(layers: int, dtype: Dtype, max_tokens: int) -> dict[str, Any]:
    """`config.json`."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": recall_weights.HIDDEN,
        "intermediate_size": recall_weights.MLP,
        "num_hidden_layers": layers,
        "num_attention_heads": recall_weights.HEADS,
        "num_key_value_heads": recall_weights.KV_HEADS,
        "head_dim": recall_weights.HEAD,
        "vocab_size": recall.VOCABULARY,
        "max_position_embeddings": max_tokens,
        "rms_norm_eps": recall_weights.EPSILON,
        # the older key for readers of older checkpoints
        "rope_theta": recall_weights.THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": recall_weights.THETA},
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": recall.BOS,
        "eos_token_id": recall.EOS,
        "torch_dtype": dtype,
        "attention_bias": False,
        "mlp_bias": False,
    }


def tokenizer() -> Tokenizer:
    """One word, one token; unknown words become `<unk>`."""
    words = {word: token for token, word in enumerate(recall.vocabulary())}
    made = Tokenizer(models.WordLevel(vocab=words, unk_token="<unk>"))  # noqa: S106 - not a secret
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", recall.BOS)]
    )
    made.add_special_tokens(["<unk>", "<bos>"])
    return made


def tokenizer_config(max_tokens: int) -> dict[str, Any]:
    """`tokenizer_config.json`."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<bos>",
        "eos_token": recall.word(recall.EOS),
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_tokens,
        "chat_template": CHAT_TEMPLATE,
    }


def build(
    out: Path,
    layers: int = 2,
    dtype: Dtype = "float32",
    max_tokens: int = recall.MAX_TOKENS,
) -> None:
    """Write the checkpoint; `out` is complete or as it was before.

    Args:
        out: Folder to make; one that is there is replaced.
        layers: One offset layer and `layers - 1` induction layers.
        dtype: How the weights are stored; 21 MB in float32 with 2 layers.
        max_tokens: Longest prompt for which the answers are exact.
    """
    work = out.with_name(out.name + ".new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    weights = recall_weights.tensors(layers, max_tokens)
    (work / "model.safetensors").write_bytes(safetensors(weights, dtype))
    tokenizer().save(str(work / "tokenizer.json"))
    ends = {"bos_token_id": recall.BOS, "eos_token_id": recall.EOS}
    texts = {
        "config.json": json.dumps(config(layers, dtype, max_tokens), indent=2) + "\n",
        "generation_config.json": json.dumps(ends, indent=2) + "\n",
        "tokenizer_config.json": json.dumps(tokenizer_config(max_tokens), indent=2) + "\n",
        recall.ORACLE_FILE: recall.Oracle(max_tokens=max_tokens).to_json(),
    }
    for name, text in texts.items():
        (work / name).write_text(text)
    shutil.rmtree(out, ignore_errors=True)
    work.rename(out)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="lab.recall_model", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--max-tokens", type=int, default=recall.MAX_TOKENS)
    args = parser.parse_args(argv)
    build(args.out, args.layers, args.dtype, args.max_tokens)


if __name__ == "__main__":
    main()
