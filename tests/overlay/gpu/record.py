"""A stage's raw results, unpacked, as one file of `results/` with its provenance.

Usage: record.py STAGE FOLDER OUT.json --commit COMMIT, STAGE one of served, rounding, faults.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

SCRIPT = "bash tests/overlay/gpu/session.sh"
MODEL = "random DeepSeek-V4 checkpoint of tests/overlay/gpu/random_checkpoint.py, 6 layers"
WHAT = {
    "served": "W3 to W5 inside the real engine: beside DeepGEMM's at every call and graph replay "
    "(check), serving alone (kernels), and started with empty JIT caches with the warm-up (first) "
    "and without it (cold)",
    "rounding": "first log-prob of a 40-token prompt with W3 and W4 by DeepGEMM (theirs), by ours, "
    "in float64 (exact), and by DeepGEMM with noise of tf32's size (noisy); V1 runner, no graphs",
    "faults": "which guard of the node's own battery sees a fault that is switched on under a "
    "running server; guards that know an answer are left out: the checkpoint is random",
}


def arm(raw: dict) -> dict:
    """What is kept of one engine's record."""
    made, overlay = raw["generated"], raw.get("overlay", {})
    first = [round(answer["first_logprob"], 4) for answer in made["batch"]]
    return {
        "arm": raw["arm"],
        "boot": {key: round(value, 1) for key, value in raw["boot"].items()},
        "generated_s": {key[:-2]: value for key, value in made.items() if key.endswith("_s")},
        "c128a": raw["c128a"], "zeroer": raw["zeroer"],
        "first_logprobs_of_4_prompts": first,
        "first_logprob_of_the_40_token_prompt_alone": round(made["solo"][0]["first_logprob"], 4),
        "first_logprob_of_30000_tokens": round(made["long"][0]["first_logprob"], 4),
        "first_tokens_of_the_40_token_prompt": made["batch"][0]["ids"][:8],
        "patches": {patch["id"]: patch["state"] for patch in overlay.get("patches", [])},
        "kernels": overlay.get("kernels", []), "agreement": overlay.get("agreement", []),
        "counters": overlay.get("counters", {}),
        "c128a_widths": overlay.get("facts", {}).get("c128a_widths", []),
    }  # fmt: skip


def contents(stage: str, folder: Path) -> dict:
    """The part of the document that the stage measured."""
    if stage == "served":
        arms = [arm(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
        return {"arms": {found["arm"]: found for found in arms}}
    raw = json.loads((folder / f"{stage}.json").read_text())
    return {key: value for key, value in raw.items() if key != "date"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=WHAT)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--commit", required=True)
    options = parser.parse_args()
    card, driver = (options.folder / "card.txt").read_text().strip().split(", ")
    document = {
        "card": f"{card} (sm_90), driver {driver}", "date": time.strftime("%F"),
        "label": "emulated", "n": 1, "model": MODEL, "what": WHAT[options.stage],
        "software": "vllm 0.27.1 (PyPI wheel), torch 2.13.0+cu130, triton 3.7.1",
        "command": f"{SCRIPT} install && {SCRIPT} {options.stage}", "commit": options.commit,
    } | contents(options.stage, options.folder)  # fmt: skip
    options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
