"""Attention metadata: what the kernels are told each step."""
