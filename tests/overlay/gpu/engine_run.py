"""The real engine over a random DeepSeek-V4 checkpoint on one GPU: #12, #13 and W3-W5 there.

One process an arm: `VLLM_PLUGINS=` (empty) is stock, unset is the overlay. Writes one JSON.
"""

# ruff: noqa: PLC0415 - the engine is imported when the plugins are loaded, not before

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--spec", action="store_true", help="DSpark with 5 tokens, V2 runner")
    parser.add_argument("--arm", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-model-len", type=int, default=131_072)
    parser.add_argument("--boot-only", action="store_true")
    parser.add_argument("--utilization", type=float)
    parser.add_argument(
        "--without-warmup", action="store_true", help="kernels compile on first use, as in stock"
    )
    return parser.parse_args()


def engine(options):
    from vllm import LLM

    more = {}
    if options.spec:
        more["speculative_config"] = {"method": "dspark", "num_speculative_tokens": 5}
    if options.utilization:
        more["gpu_memory_utilization"] = options.utilization
    else:
        more |= {"gpu_memory_utilization": 0.2, "kv_cache_memory_bytes": 6 << 30}
    return LLM(
        model=options.model, skip_tokenizer_init=True, kv_cache_dtype="fp8_ds_mla", block_size=256,
        max_model_len=options.max_model_len, max_num_seqs=4, max_num_batched_tokens=2048,
        disable_log_stats=True, seed=0, enable_prefix_caching=False,
        compilation_config={"cudagraph_mode": "FULL_AND_PIECEWISE"},
        kernel_config={"enable_flashinfer_autotune": False}, **more,
    )  # fmt: skip


class Strides:
    """Row strides of the C128A decode rows, as captured and as built for later steps."""

    def __init__(self):
        from vllm.models.deepseek_v4.sparse_mla import DeepseekV4FlashMLAMetadataBuilder as Builder

        self.booting, self.rows, self.seen = True, [], {"capture": {}, "serving": {}}
        self.builders = []
        original = Builder._build_c128a_metadata

        def build(builder, common, *args):
            if builder not in self.builders:
                self.builders.append(builder)
            found = original(builder, common, *args)
            view = found.get("c128a_global_decode_topk_indices")
            if view is not None:
                phase = "capture" if self.booting else "serving"
                key = f"stride {view.stride(0)}"
                self.seen[phase][key] = self.seen[phase].get(key, 0) + 1
                if not self.booting and common.num_actual_tokens == view.shape[0]:
                    self.check(builder, view)
            return found

        Builder._build_c128a_metadata = build

    def check(self, builder, view):
        """Rows of this step where a graph captured at the buffer's width would read them."""
        import torch

        buffer, lens = builder.c128a_global_decode_buffer, builder.c128a_decode_lens_buffer
        where = torch.as_strided(buffer, (view.shape[0], buffer.shape[1]), (buffer.shape[1], 1), 0)
        for row, length in enumerate(lens[: view.shape[0]].tolist()):
            if length:
                same = bool((where[row, :length] == view[row, 0, :length]).all())
                self.rows.append([row, same])


def zeroer_probe(llm):
    """Bytes of each block row that zeroing block 3 clears, in the engine's own cache."""
    import torch

    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    zeroer = getattr(runner, "_kv_block_zeroer", None) or getattr(runner, "kv_block_zeroer", None)
    context = llm.llm_engine.vllm_config.compilation_config.static_forward_context
    caches = [getattr(layer, "kv_cache", None) for layer in context.values()]
    cache = next(c for c in caches if isinstance(c, torch.Tensor) and c.numel())
    storage = cache.untyped_storage()
    raw = torch.empty(0, dtype=torch.uint8, device="cuda").set_(storage)
    row = cache.stride(0) * cache.element_size()
    raw.fill_(0x5A)
    zeroer.zero_block_ids([3])
    torch.cuda.synchronize()
    cleared = [int((raw[b * row : (b + 1) * row] == 0).sum()) for b in range(6)]
    return {"runner": type(runner).__module__, "row_bytes": row, "cleared_by_block": cleared}


def generate(llm):
    """Greedy tokens of four prompts together, of the first alone and of a long one; seconds."""
    import torch
    from vllm import SamplingParams

    generator = torch.Generator().manual_seed(7)
    prompts = [
        torch.randint(3, 4096, (n,), generator=generator).tolist() for n in (40, 700, 3000, 6000)
    ]
    wish = SamplingParams(
        temperature=0, max_tokens=24, ignore_eos=True, logprobs=1, detokenize=False
    )
    # 30,000 tokens are 7,500 keys of the indexer: there a top-512 leaves most of them out.
    long = torch.randint(3, 4096, (30_000,), generator=generator).tolist()
    seen = {}
    for name, batch in (("batch", prompts), ("solo", prompts[:1]), ("long", [long])):
        started = time.perf_counter()
        outputs = llm.generate([{"prompt_token_ids": p} for p in batch], wish, use_tqdm=False)
        seen[f"{name}_s"] = round(time.perf_counter() - started, 3)
        seen[name] = [
            {
                "ids": list(o.outputs[0].token_ids),
                "first_logprob": max(v.logprob for v in o.outputs[0].logprobs[0].values()),
            }
            for o in outputs
        ]
    return seen


def time_boot(record):
    """Seconds in the two stages of a worker's start that a startup plan touches."""
    from vllm.v1.worker import gpu_worker

    for name in ("determine_available_memory", "compile_or_warm_up_model"):
        original = getattr(gpu_worker.Worker, name)

        def timed(self, *args, _original=original, _name=name, **kwargs):
            started = time.perf_counter()
            result = _original(self, *args, **kwargs)
            record[_name + "_s"] = time.perf_counter() - started
            if _name == "determine_available_memory":
                record["kv_bytes"] = int(result)
            return result

        setattr(gpu_worker.Worker, name, timed)


def watch_fingerprint(record):
    """The startup plan's key before anything is allocated, and with the allocation doubled."""
    import torch
    from vllm.v1.worker import gpu_worker, startup_plan

    original = gpu_worker.maybe_apply_startup_plan

    def apply(worker):
        config, cache = worker.vllm_config, worker.cache_config

        def key():
            world = worker.parallel_config.world_size
            return startup_plan.compute_plan_fingerprint(config, worker.rank, world)

        found, blocks = {"key": key()}, cache.num_gpu_blocks
        bytes_ = torch.cuda.memory_allocated()
        held = torch.empty(bytes_, dtype=torch.uint8, device="cuda")
        cache.num_gpu_blocks = 2 * (blocks or 21_000)
        found["key_doubled"], found["doubled_bytes"] = key(), [bytes_, 2 * bytes_]
        cache.num_gpu_blocks = blocks
        del held
        torch.cuda.empty_cache()
        record["fingerprint"] = found
        original(worker)

    gpu_worker.maybe_apply_startup_plan = apply


def main():
    options = arguments()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    started = time.perf_counter()
    import torch

    record = {"arm": options.arm, "argv": sys.argv[1:], "boot": {}}
    import vllm
    from vllm.plugins import load_general_plugins

    load_general_plugins()  # as EngineArgs does, and before the models are imported here
    time_boot(record["boot"])
    if options.boot_only:
        watch_fingerprint(record["boot"])
    if options.without_warmup:
        from twinspark.patches.graphs import first_use

        first_use.compile_all = first_use.run_steps = lambda *_: None
    strides = None if options.boot_only else Strides()
    llm = engine(options)
    record["boot"]["engine_up_s"] = time.perf_counter() - started
    if strides is not None:
        strides.booting = False
        record["generated"] = generate(llm)
        good = sum(same for _, same in strides.rows)
        record["c128a"] = strides.seen | {
            "rows_checked": len(strides.rows),
            "rows_where_the_graph_reads": good,
            "rows_not_0_checked": sum(row > 0 for row, _ in strides.rows),
        }
        record["zeroer"] = zeroer_probe(llm)
    if os.environ.get("VLLM_PLUGINS") is None:
        from twinspark import report, selection

        if selection.checking():
            selection.settle(quiet_s=0.0)
        record["overlay"] = report.current().as_dict()
    record["versions"] = {"vllm": vllm.__version__, "torch": torch.__version__,
                          "card": torch.cuda.get_device_name()}  # fmt: skip
    options.out.write_text(json.dumps(record, indent=1, default=str) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
