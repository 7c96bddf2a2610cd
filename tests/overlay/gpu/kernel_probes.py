"""#13 through a real CUDA graph, and #13b through the real sampling kernel, without a model.

Usage: kernel_probes.py OUT.json; `VLLM_PLUGINS=` (empty) is stock, unset is the overlay.
"""

# ruff: noqa: PLC0415 - the engine is imported when the plugins are loaded, not before

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace


def builder(max_model_len):
    import torch
    from vllm.models.deepseek_v4.sparse_mla import DeepseekV4FlashMLAMetadataBuilder

    from overlay.deepseek import specs

    spec = next(s for name, s in specs((128,)).items() if name.endswith("mla"))
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=max_model_len, hf_config=SimpleNamespace(index_topk=512)
        ),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=64),
        speculative_config=SimpleNamespace(num_speculative_tokens=5, parallel_drafting=True),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1),
    )
    return DeepseekV4FlashMLAMetadataBuilder(spec, [], config, torch.device("cuda")), spec


def build(it, requests, max_seq_len=None):
    """One decode step of 6 tokens a request; its view, and its rows by definition."""
    import torch

    maker, spec = it
    pages, slots = -(-maker.model_config.max_model_len // 256), spec.block_size // 128
    tokens = 6 * len(requests)
    starts = torch.arange(0, tokens + 1, 6, dtype=torch.int32)
    lens = torch.tensor([p + 6 for p, _ in requests], dtype=torch.int32)
    table = torch.stack([torch.arange(b, b + pages, dtype=torch.int32) for _, b in requests])
    positions = torch.cat([torch.arange(p, p + 6) for p, _ in requests]).cuda()
    rows = torch.repeat_interleave(torch.arange(len(requests), dtype=torch.int32), 6).cuda()
    common = SimpleNamespace(
        num_reqs=len(requests), num_actual_tokens=tokens, max_query_len=6,
        max_seq_len=max_seq_len or int(lens.max()), query_start_loc=starts.cuda(),
        query_start_loc_cpu=starts, seq_lens=lens.cuda(), block_table_tensor=table.cuda(),
        slot_mapping=positions.clone(), positions=positions,
        token_to_req_indices=lambda _buffer: rows,
    )  # fmt: skip
    view = maker.build(0, common).c128a_global_decode_topk_indices
    wanted = [
        [(b + s // slots) * slots + s % slots for s in range((p + t + 1) // 128)]
        for p, b in requests
        for t in range(6)
    ]
    return view, wanted


def graph_probe():
    """A CUDA graph captured over the capture step's view, replayed on later steps."""
    import torch

    it = builder(1 << 20)
    it[0].c128a_global_decode_buffer.fill_(-1)
    view, _ = build(it, [(0, 0)], max_seq_len=1 << 20)
    out = torch.empty_like(view)
    out.copy_(view)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.copy_(view)

    def replay(requests):
        _, wanted = build(it, requests)
        graph.replay()
        torch.cuda.synchronize()
        return [out[r, 0, : len(w)].tolist() == w for r, w in enumerate(wanted)]

    fresh = replay([(1024, 10)])
    build(it, [(65_600, 50 + 700 * i) for i in range(8)])
    return {"captured_stride": view.stride(0), "fresh": fresh,
            "after_a_busy_step": replay([(1024, 10)])}  # fmt: skip


def nan_probe():
    """Ids of NaN rows from the real sampling kernel, and what was counted."""
    import torch
    from vllm.v1.worker.gpu.sample import sampler

    seen = {}
    for vocabulary in (4096, 129_280, 4097, 1500):
        # The last block of 1024 is partial where the vocabulary is no multiple of it.
        tail = vocabulary - 1 - (vocabulary - 1) % 1024
        for name, start in (("nan", 0), ("nan in the last block", tail), ("clean", None)):
            logits = torch.randn(64, vocabulary, device="cuda")
            if start is not None:
                logits[:, start:] = float("nan")
            rows = torch.arange(64, dtype=torch.int32, device="cuda")
            zeros = torch.zeros(64, device="cuda")
            ids = sampler.gumbel_sample(
                logits, rows, zeros, zeros.long(), rows.long(), apply_temperature=True
            )
            seen[f"{name} {vocabulary}"] = {
                "min": int(ids.min()), "max": int(ids.max()),
                "inside": bool(((ids >= 0) & (ids < vocabulary)).all()),
            }  # fmt: skip
    torch.cuda.synchronize()
    return seen


def main():
    import torch
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    record = {"graph": graph_probe(), "sampling": nan_probe(),
              "card": torch.cuda.get_device_name(), "time": time.time()}  # fmt: skip
    if os.environ.get("VLLM_PLUGINS") is None:
        from twinspark import report

        record["counters"] = report.current().as_dict()["counters"]
    Path(sys.argv[1]).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
