"""Who the short names in the schema's sources are: what others serve this model with on Sparks.

Read in their own files between July and October 2026; the figures are theirs, none was measured
here.
"""

from __future__ import annotations

SOURCES = {
    "first seed": "a report on thirteen faults of this model on two Sparks (August 2026)",
    "Reed": "github.com/Reederey87/dgx-spark-2x-deepseek-v4-flash",
    "Mia": "github.com/MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark",
    "tony": "github.com/tonyd2wild/DeepSeek-v4-Flash-0731-DSpark-1M-NVFP4-KV-2x-DGX-Spark",
    "ecohash": "github.com/ecohash-co/deepseek-v4-flash-dgx-spark-vllm027",
    "Anemll": "github.com/Anemll/dspark-vllm-gx10",
    "nepenth": "github.com/nepenth/deepseek-v4-flash-gb10",
    "lutong": "github.com/lutong-z/deepseek-v4-flash-dgx-spark-deploy",
    "CO": "github.com/colonel-otto/3x-dgx-spark-mesh-deepseek-v4-0731-flash (three nodes)",
    "hazyumps": "github.com/hazyumps/deepseek-v4-flash-gb10",
    "NemoClaw": "NVIDIA's managed-inference recipe vllm.deepseek-v4-flash-0731.spark-dual",
    "NVIDIA": "NVIDIA's local-ai recipe for two Sparks",
    "playbooks": "github.com/NVIDIA/dgx-spark-playbooks, by issue",
    "@0.27.1": "file and line in the wheel vllm 0.27.1",
}
