"""DeepSeek-V4's KV cache in small, built by the engine's own code; used inside scenarios only."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

from types import SimpleNamespace

# The real net is [0, 0] + [4, 128] * 20 + [4, 0, 0, 0]; these have each kind of layer.
SMALL = (0, 4, 128)


def specs(compress_ratios=SMALL, block_size=256):
    """KV cache spec of every layer, as attention.py:655, compressor.py:191 and
    sparse_swa.py:96 give them for `fp8_ds_mla`."""
    import torch
    from vllm.v1.kv_cache_interface import (
        KVQuantMode,
        MLAAttentionSpec,
        SlidingWindowMLASpec,
        get_kv_quant_mode,
    )

    assert isinstance(get_kv_quant_mode("fp8_ds_mla"), KVQuantMode)
    main = {
        "num_kv_heads": 1,
        "head_size": 512,
        "dtype": torch.uint8,
        "cache_dtype_str": "fp8_ds_mla",
        "alignment": 576,
        "model_version": "deepseek_v4",
        "kv_quant_mode": get_kv_quant_mode("fp8_ds_mla"),
    }

    def state(block, width, window):
        return SlidingWindowMLASpec(
            block_size=block, num_kv_heads=1, head_size=width, dtype=torch.float32,
            sliding_window=window, alignment=576,
        )  # fmt: skip

    found = {}
    for index, ratio in enumerate(compress_ratios):
        name = f"model.layers.{index}.attn"
        if ratio:
            found[f"{name}.mla"] = MLAAttentionSpec(
                block_size=block_size, compress_ratio=ratio, **main
            )
        found[f"{name}.swa"] = SlidingWindowMLASpec(block_size=64, sliding_window=128, **main)
        if ratio == 4:
            found[f"{name}.indexer"] = MLAAttentionSpec(
                block_size=block_size, num_kv_heads=1, head_size=132, dtype=torch.uint8,
                compress_ratio=4, alignment=576,
            )  # fmt: skip
            found[f"{name}.state"] = state(4, 2048, 8)
            found[f"{name}.indexer.state"] = state(4, 512, 8)
        elif ratio == 128:
            found[f"{name}.state"] = state(8, 1024, 128)
    return found


def config(**cache):
    """The parts of VllmConfig that the KV cache code reads."""
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        speculative_config=None,
        kv_transfer_config=None,
        cache_config=SimpleNamespace(num_gpu_blocks_override=None, **cache),
    )


def backend_of(name):
    from vllm.models.deepseek_v4.compressor import CompressorBackend
    from vllm.models.deepseek_v4.nvidia.flashinfer_sparse import (
        DeepseekV4FlashInferMLASparseBackend,
    )
    from vllm.v1.attention.backends.mla.indexer import DeepseekV4IndexerBackend
    from vllm.v1.attention.backends.mla.sparse_swa import DeepseekSparseSWABackend

    if name.endswith("state"):
        return CompressorBackend
    if name.endswith("indexer"):
        return DeepseekV4IndexerBackend
    if name.endswith("swa"):
        return DeepseekSparseSWABackend
    return DeepseekV4FlashInferMLASparseBackend


def kv_cache_config(layers, blocks):
    """`KVCacheConfig` of a number of blocks: real grouping, real packing."""
    from vllm.v1.core import kv_cache_utils as utils

    vllm_config = config()
    groups = utils.get_kv_cache_groups(vllm_config, layers)
    stride, _ = utils._get_packed_kv_cache_layout(groups)
    return utils.get_kv_cache_config_from_groups(vllm_config, groups, stride * blocks)


class Cache:
    """An allocated cache with its attention groups, as a V2 runner has it.

    Attributes:
        backing: `[blocks, stride]` bytes, all layers' pages inside.
        context: layer name -> object with `kv_cache`.
        groups: `AttentionGroup`s, one a layer.
    """

    def __init__(self, layers, blocks):
        import torch
        from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs
        from vllm.v1.worker.gpu import attn_utils
        from vllm.v1.worker.utils import AttentionGroup

        self.config = kv_cache_config(layers, blocks)
        self.kernel_block_sizes = []
        self.groups = []
        for index, group in enumerate(self.config.kv_cache_groups):
            assert isinstance(group.kv_cache_spec, UniformTypeKVCacheSpecs)
            self.kernel_block_sizes.append(group.kv_cache_spec.block_size)
            for layer in group.layer_names:
                spec = group.kv_cache_spec.kv_cache_specs[layer]
                self.groups.append(AttentionGroup(backend_of(layer), [layer], spec, index))
        raw = attn_utils._allocate_kv_cache(self.config, {}, torch.device("cpu"))
        caches = attn_utils._reshape_kv_cache(
            self.groups, raw, "fp8_ds_mla", self.kernel_block_sizes, {}, self.config
        )
        self.context = {name: SimpleNamespace(kv_cache=kv) for name, kv in caches.items()}
        first = next(iter(raw.values()))
        self.backing = first.view(torch.uint8).view(blocks, -1)

    def zeroer(self):
        import torch
        from vllm.v1.worker.utils import KVBlockZeroer

        return KVBlockZeroer(
            torch.device("cpu"),
            attn_groups_iter=iter(self.groups),
            kernel_block_sizes=self.kernel_block_sizes,
            cache_dtype="fp8_ds_mla",
            static_forward_context=self.context,
        )

    def cleared(self, blocks):
        """Bytes that zeroing clears, by block, from a cache full of ones."""
        self.backing.fill_(1)
        self.zeroer().zero_block_ids(blocks)
        return [int(row.numel() - row.count_nonzero()) for row in self.backing]
