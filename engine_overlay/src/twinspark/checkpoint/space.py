"""Room on the disk, asked for before the first byte is moved."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from twinspark.checkpoint.errors import CannotRunError

if TYPE_CHECKING:
    from pathlib import Path

MARGIN = 256 * 2**20  # bytes that stay free on the target's file system


def check_space(root: Path, needed: int) -> None:
    """Raise unless `needed` bytes and a margin are free where `root` is.

    Raises:
        CannotRunError: they are not.
    """
    free = shutil.disk_usage(root).free
    if needed + MARGIN > free:
        raise CannotRunError(
            f"{root}: {needed} bytes are to come and {MARGIN} must stay free, "
            f"but {free} are free: make room first"
        )
