"""Kernels for what a stock vLLM 0.27.1 has no SM12x code for: one package an operation.

Each package holds `kernel.py` (Triton), `reference.py` (plain torch in float64, from the
definition) and, in `__init__.py`, `dispatch(...) -> (callable, reason)`. Importing this package
itself imports neither torch nor Triton.
"""
