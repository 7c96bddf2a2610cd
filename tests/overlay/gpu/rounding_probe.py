"""How far roundings of W3 and W4 move one log-prob of the random checkpoint, and whose are nearer.

One engine without graphs; before each run of the same 40-token prompt the two operations are
switched: DeepGEMM's, ours, float64 from the definition, and DeepGEMM's with noise of tf32's size.
Usage: rounding_probe.py CHECKPOINT OUT.json, with TWINSPARK_KERNELS=triton.
"""

# ruff: noqa: PLC0415 - the engine is imported when the plugins are loaded, not before

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path

TF32 = 3e-4  # relative; what DeepGEMM's W3 is off by against float64
REPEATS, SEEDS = 4, 8


class W3:
    """The pre-norm product: every consumer takes the name from this module at each call."""

    def __init__(self):
        import torch
        from vllm.utils import deep_gemm

        from twinspark.kernels.hc_prenorm_gemm.reference import hc_prenorm_gemm

        self.module, self.ours = deep_gemm, deep_gemm.tf32_hc_prenorm_gemm
        self.theirs = self.ours.__wrapped__
        self.noise = torch.Generator(device="cuda")
        self.reference = hc_prenorm_gemm

    def exact(self, x, fn, out, sqrsum, _num_split):
        """The whole sum in the first share, none in the others."""
        out.zero_(), sqrsum.zero_()
        product, square = self.reference(x.flatten(1), fn)
        out[0], sqrsum[0] = product.float(), square.float()

    def noisy(self, x, fn, out, sqrsum, num_split):
        import torch

        self.theirs(x, fn, out, sqrsum, num_split)
        for tensor in (out, sqrsum):
            drawn = torch.randn(tensor.shape, generator=self.noise, device="cuda")
            tensor.mul_(1 + TF32 * drawn)

    def take(self, name):
        self.module.tf32_hc_prenorm_gemm = getattr(self, name)


class W4:
    """The grouped product of the o-projection, as FlashMLA's layer takes it."""

    def __init__(self):
        from vllm.models.deepseek_v4.nvidia import flashmla

        self.module, self.ours = flashmla, flashmla.deep_gemm_fp8_o_proj
        self.theirs = self.ours.__wrapped__

    def exact(self, *args, **sizes):
        from twinspark import selection
        from twinspark.kernels.fp8_o_proj.reference import fp8_o_proj

        def launch(x, x_scale, weight, weight_scale, out):
            out.copy_(fp8_o_proj(x, x_scale, weight, weight_scale))

        kept = selection.launcher
        selection.launcher = lambda *_: launch
        try:
            return self.ours(*args, **sizes)
        finally:
            selection.launcher = kept

    def take(self, name):
        self.module.deep_gemm_fp8_o_proj = getattr(self, name)


ARMS = tuple((w3, w4) for w3 in ("theirs", "ours", "exact") for w4 in ("theirs", "ours", "exact"))


def engine(model):
    from vllm import LLM

    return LLM(
        model=model, skip_tokenizer_init=True, kv_cache_dtype="fp8_ds_mla", block_size=256,
        max_model_len=4096, max_num_seqs=1, max_num_batched_tokens=2048, enforce_eager=True,
        disable_log_stats=True, seed=0, enable_prefix_caching=False, gpu_memory_utilization=0.2,
        kv_cache_memory_bytes=1 << 30, kernel_config={"enable_flashinfer_autotune": False},
    )  # fmt: skip


def main():
    model, out = sys.argv[1], Path(sys.argv[2])
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import torch
    from vllm import SamplingParams
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    llm, w3, w4 = engine(model), W3(), W4()
    prompt = torch.randint(3, 4096, (40,), generator=torch.Generator().manual_seed(7)).tolist()
    wish = SamplingParams(temperature=0, max_tokens=1, logprobs=1, detokenize=False)

    def ask():
        (done,) = llm.generate([{"prompt_token_ids": prompt}], wish, use_tqdm=False)
        ((token, found),) = ((t, p) for t, p in done.outputs[0].logprobs[0].items() if p.rank == 1)
        return [token, round(found.logprob, 4)]

    rows = []

    def record(first, second, answers):
        values = [value for _, value in answers]
        row = {
            "w3": first, "w4": second, "tokens": sorted({token for token, _ in answers}),
            "logprobs": values, "median": statistics.median(values),
        }  # fmt: skip
        rows.append(row)
        print(f"W3 {first:7s} W4 {second:7s} {row['median']:.4f} {min(values)} {max(values)}")

    for first, second in ARMS:
        w3.take(first), w4.take(second)
        record(first, second, [ask() for _ in range(REPEATS)])
    w3.take("noisy"), w4.take("theirs")
    answers = []
    for seed in range(SEEDS):
        w3.noise.manual_seed(seed)
        answers.append(ask())
    record("noisy", "theirs", answers)
    out.write_text(json.dumps({"noise": TF32, "rows": rows}, indent=1) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
