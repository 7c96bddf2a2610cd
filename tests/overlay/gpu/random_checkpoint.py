"""A random checkpoint with DeepSeek-V4-Flash's layer shapes and few layers, experts and words.

Real: per-layer shapes, quantisation (FP8 blocks with UE8M0 scales, FP4 experts), names as the
engine's loader maps them, hyper-connections, the C4A/C128A pattern, DSpark's stages. Random: all
values. Usage: random_checkpoint.py FOLDER [--dspark]; takes the GPU when there is one.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

HIDDEN, VOCABULARY, EXPERTS, LAYERS = 4096, 4096, 16, 6
HEADS, HEAD_DIM, Q_RANK, O_RANK, O_GROUPS, MOE = 64, 512, 1024, 1024, 8, 2048
RATIOS = (0, 0, 4, 128, 4, 128)
STAGES = 3


def config(dspark: bool) -> dict[str, Any]:
    """`config.json`."""
    found: dict[str, Any] = {
        "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4",
        "torch_dtype": "bfloat16", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": HEAD_DIM,
        "qk_rope_head_dim": 64, "q_lora_rank": Q_RANK, "o_lora_rank": O_RANK,
        "o_groups": O_GROUPS, "compress_ratios": [*RATIOS, *([0] * STAGES if dspark else [])],
        "sliding_window": 128, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512,
        "n_routed_experts": EXPERTS, "n_shared_experts": 1, "num_experts_per_tok": 6,
        "moe_intermediate_size": MOE, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
        "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "num_hash_layers": 2,
        "swiglu_limit": 10.0, "hidden_act": "silu", "expert_dtype": "fp4", "hc_mult": 4,
        "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6,
        "vocab_size": VOCABULARY, "max_position_embeddings": 1 << 20, "rope_theta": 10000.0,
        "compress_rope_theta": 160000.0,
        "rope_scaling": {
            "type": "yarn", "rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
            "original_max_position_embeddings": 65536,
        },
        "quantization_config": {
            "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
            "scale_fmt": "ue8m0", "weight_block_size": [128, 128],
        },
        "bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": False,
        "attention_bias": False, "use_cache": True, "num_nextn_predict_layers": 1,
    }  # fmt: skip
    if dspark:
        found |= {
            "dspark_block_size": 5, "dspark_noise_token_id": 2, "n_mtp_layers": STAGES,
            "dspark_target_layer_ids": [1, 3, 5], "dspark_markov_rank": 256,
        }  # fmt: skip
    return found


class Weights:
    """Tensors by name, drawn from one seeded generator."""

    def __init__(self) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.draw = torch.Generator(device=self.device).manual_seed(1234)
        self.tensors: dict[str, torch.Tensor] = {}

    def put(self, name: str, tensor: torch.Tensor) -> None:
        self.tensors[name] = tensor.contiguous().cpu()

    def normal(self, name: str, *shape: int, std: float = 1.0, mean: float = 0.0,
               dtype: torch.dtype = torch.bfloat16) -> None:  # fmt: skip
        drawn = torch.randn(*shape, generator=self.draw, device=self.device)
        self.put(name, (drawn * std + mean).to(dtype))

    def single(self, name: str, *shape: int, std: float, mean: float = 0.0) -> None:
        self.normal(name, *shape, std=std, mean=mean, dtype=torch.float32)

    def _scale(self, name: str, std: float, *shape: int) -> None:
        exponent = 127 + round(math.log2(std))
        raw = torch.full(shape, exponent, dtype=torch.uint8, device=self.device)
        self.put(name, raw.view(torch.float8_e8m0fnu))

    def fp8(self, name: str, rows: int, columns: int) -> None:
        """`[rows, columns]` E4M3 in blocks of 128 x 128, effective std 1/sqrt(columns)."""
        drawn = torch.randn(rows, columns, generator=self.draw, device=self.device)
        self.put(f"{name}.weight", drawn.clamp_(-4, 4).to(torch.float8_e4m3fn))
        self._scale(f"{name}.scale", columns**-0.5, -(-rows // 128), -(-columns // 128))

    def fp4(self, name: str, rows: int, columns: int) -> None:
        """`[rows, columns]` E2M1, two a byte, in blocks of 32."""
        drawn = torch.randint(
            0, 256, (rows, columns // 2), generator=self.draw, device=self.device,
            dtype=torch.uint8,
        )  # fmt: skip
        self.put(f"{name}.weight", drawn)
        self._scale(f"{name}.scale", 1 / (2.9 * math.sqrt(columns)), rows, columns // 32)

    def compressor(self, name: str, width: int, streams: int, ratio: int) -> None:
        for part in ("wkv", "wgate"):
            self.normal(f"{name}.{part}.weight", streams * width, HIDDEN, std=HIDDEN**-0.5)
        self.single(f"{name}.ape", ratio, streams * width, std=0.1)
        self.normal(f"{name}.norm.weight", width, std=0.1, mean=1)

    def attention(self, name: str, ratio: int) -> None:
        self.fp8(f"{name}.wq_a", Q_RANK, HIDDEN)
        self.fp8(f"{name}.wkv", HEAD_DIM, HIDDEN)
        self.fp8(f"{name}.wq_b", HEADS * HEAD_DIM, Q_RANK)
        self.fp8(f"{name}.wo_a", O_GROUPS * O_RANK, HEADS * HEAD_DIM // O_GROUPS)
        self.fp8(f"{name}.wo_b", HIDDEN, O_GROUPS * O_RANK)
        self.normal(f"{name}.q_norm.weight", Q_RANK, std=0.1, mean=1)
        self.normal(f"{name}.kv_norm.weight", HEAD_DIM, std=0.1, mean=1)
        self.single(f"{name}.attn_sink", HEADS, std=0.5)
        if ratio:
            self.compressor(f"{name}.compressor", HEAD_DIM, 2 if ratio == 4 else 1, ratio)
        if ratio == 4:
            self.fp8(f"{name}.indexer.wq_b", 64 * 128, Q_RANK)
            self.normal(f"{name}.indexer.weights_proj.weight", 64, HIDDEN, std=HIDDEN**-0.5)
            self.compressor(f"{name}.indexer.compressor", 128, 2, ratio)

    def experts(self, name: str, hashed: bool) -> None:
        self.normal(f"{name}.gate.weight", EXPERTS, HIDDEN, std=HIDDEN**-0.5)
        if hashed:
            rows = [
                torch.randperm(EXPERTS, generator=self.draw, device=self.device)[:6]
                for _ in range(VOCABULARY)
            ]
            self.put(f"{name}.gate.tid2eid", torch.stack(rows).to(torch.int32))
        else:
            self.single(f"{name}.gate.bias", EXPERTS, std=0.01)
        for expert in range(EXPERTS):
            for part, rows_, columns in (("w1", MOE, HIDDEN), ("w3", MOE, HIDDEN),
                                         ("w2", HIDDEN, MOE)):  # fmt: skip
                self.fp4(f"{name}.experts.{expert}.{part}", rows_, columns)
        for part, rows_, columns in (("w1", MOE, HIDDEN), ("w3", MOE, HIDDEN), ("w2", HIDDEN, MOE)):
            self.fp8(f"{name}.shared_experts.{part}", rows_, columns)

    def layer(self, name: str, ratio: int, hashed: bool) -> None:
        for norm in ("attn_norm", "ffn_norm"):
            self.normal(f"{name}.{norm}.weight", HIDDEN, std=0.1, mean=1)
        for part in ("attn", "ffn"):
            self.single(f"{name}.hc_{part}_fn", 24, 4 * HIDDEN, std=(4 * HIDDEN) ** -0.5)
            self.single(f"{name}.hc_{part}_base", 24, std=0.1)
            self.single(f"{name}.hc_{part}_scale", 3, std=0.1, mean=0.5)
        self.attention(f"{name}.attn", ratio)
        self.experts(f"{name}.ffn", hashed)

    def fold(self, prefix: str) -> None:
        """The hyper-connection head that folds four streams into one."""
        self.single(f"{prefix}hc_head_fn", 4, 4 * HIDDEN, std=(4 * HIDDEN) ** -0.5)
        self.single(f"{prefix}hc_head_base", 4, std=0.1)
        self.single(f"{prefix}hc_head_scale", 1, std=0.1, mean=0.5)

    def dspark(self) -> None:
        for stage in range(STAGES):
            self.layer(f"mtp.{stage}", 0, hashed=False)
        self.fp8("mtp.0.main_proj", HIDDEN, 3 * HIDDEN)
        self.normal("mtp.0.main_norm.weight", HIDDEN, std=0.1, mean=1)
        self.normal("mtp.2.norm.weight", HIDDEN, std=0.1, mean=1)
        self.fold("mtp.2.")
        self.normal("mtp.2.markov_head.markov_w1.weight", VOCABULARY, 256)
        self.normal("mtp.2.markov_head.markov_w2.weight", VOCABULARY, 256, std=0.06)


def tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens are bytes, so that the server takes any text."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    # GPT-2's alphabet: printable bytes stand for themselves, the others follow from 256 on.
    letters = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    words = {letter: 3 + byte for letter, byte in letters.items()}
    words |= {f"t{token}": token for token in range(VOCABULARY) if not 3 <= token < 259}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": False}  # fmt: skip
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False, "vocab": words, "merges": [],
    }  # fmt: skip
    document = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": bytes_, "post_processor": None, "decoder": bytes_,
        "model": model,
    }  # fmt: skip
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "t0", "eos_token": "t1",
             "unk_token": "t2", "model_max_length": 1 << 20}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


def main() -> None:
    folder, dspark = Path(sys.argv[1]), "--dspark" in sys.argv
    folder.mkdir(parents=True, exist_ok=True)
    weights = Weights()
    weights.normal("embed.weight", VOCABULARY, HIDDEN)
    weights.normal("head.weight", VOCABULARY, HIDDEN, std=1.5 * HIDDEN**-0.5)
    weights.normal("norm.weight", HIDDEN, std=0.1, mean=1)
    weights.fold("")
    for index, ratio in enumerate(RATIOS):
        weights.layer(f"layers.{index}", ratio, hashed=index < 2)
    if dspark:
        weights.dspark()
    save_file(weights.tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config(dspark), indent=1))
    tokenizer(folder)
    (folder / "generation_config.json").write_text('{"bos_token_id": 0, "eos_token_id": 1}')


if __name__ == "__main__":
    main()
