"""The toolkit's lock, and a real compilation for sm_121a where a toolkit is at hand."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from host.render import ROOT
from twinspark.host import toolkit

FILES = ROOT / "roles" / "cuda_toolkit" / "files"
HOME = Path(os.environ.get("TWINSPARK_CUDA_HOME", "/usr/local/cuda-13.3"))


def test_lock__is_what_the_input_asks_for_and_every_wheel_has_hashes():
    lock = (FILES / "cuda-13.3.lock").read_text(encoding="utf-8")
    wanted = (FILES / "cuda-13.3.in").read_text(encoding="utf-8")
    pinned = re.search(r"(?m)^cuda-toolkit\[.*\](==\S+)", wanted)
    assert pinned
    assert f"cuda-toolkit{pinned[1]} " in lock
    requirements = re.findall(r"(?m)^([a-z][\w-]*)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", lock)
    assert len(requirements) == len(re.findall(r"(?m)^[a-z]", lock))
    assert {"nvidia-cuda-nvcc", "nvidia-cuda-cuobjdump", "nvidia-nvvm"} <= {
        one for one, _ in requirements
    }


@pytest.mark.skipif(not shutil.which("c++"), reason="no compiler")
def test_complete__a_toolkit_of_wheels__links_as_flashinfer_does_it(tmp_path):
    library = tmp_path / "lib"
    library.mkdir()
    words = ["c++", "-shared", "-Wl,-soname,libcudart.so.13", "-x", "c++", "/dev/null", "-o"]
    subprocess.run([*words, str(library / "libcudart.so.13")], check=True)
    assert not toolkit.links(tmp_path, tmp_path / "scratch.so")
    assert toolkit.complete(tmp_path) == ["libcudart.so", "lib64", "stubs/libcuda.so"]
    assert toolkit.links(tmp_path, tmp_path / "scratch.so")
    assert toolkit.complete(tmp_path) == []


@pytest.mark.skipif(
    not (HOME / "bin" / "nvcc").exists() or not shutil.which("g++"), reason=f"no toolkit in {HOME}"
)
def test_toolkit__makes_machine_code_for_sm_121a_once(tmp_path, capsys):
    """Emulated: the x86-64 toolkit of the same lock; nothing ran on GB10."""
    source = tmp_path / "burn.cu"
    source.write_bytes((FILES / "burn.cu").read_bytes())
    asked = argparse.Namespace(home=HOME, source=source, arch="sm_121a", complete=False)
    assert toolkit.run(asked) == 0
    probe = json.loads((tmp_path / "probe.json").read_text())
    assert (probe["sass"], probe["ptx"], probe["links"]) == (True, 0, True)
    assert toolkit.run(asked) == 0
    assert "unchanged" in capsys.readouterr().out
    source.write_text("this is no CUDA")
    assert toolkit.run(asked) == 1
    assert json.loads((tmp_path / "probe.json").read_text())["sass"] is False
