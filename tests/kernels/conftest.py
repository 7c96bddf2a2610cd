"""The kernels run in Triton's interpreter here: it must be asked for before Triton is imported."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
