"""Twinspark: DeepSeek-V4-Flash on two DGX Spark nodes, with stock vLLM 0.27.1 put right."""
