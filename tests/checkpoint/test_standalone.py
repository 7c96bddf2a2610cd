"""The tool runs on a bare node: the system's Python, the wheel, nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import twinspark

SOURCE = Path(twinspark.__file__).parent


def run(path: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Without site-packages, from one place only."""
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r}); import runpy;"
        "runpy.run_module('twinspark.checkpoint', run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_tool__needs_the_standard_library_only(verified: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "twinspark.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted(SOURCE.rglob("*.py")):
            archive.write(path, Path("twinspark") / path.relative_to(SOURCE))
    assert run(wheel, "verify", "--stamp-only", verified).returncode == 0
    assert run(wheel, "inspect", verified).returncode == 0
    assert run(wheel, "verify", verified, "--quiet", "--beside-engine").returncode == 0
    fetched = run(wheel, "fetch", "--from-directory", verified, tmp_path / "t", "--beside-engine")
    assert fetched.returncode == 0, fetched.stderr


def test_fetch_from_the_hub__without_its_client_says_who_installs_it(tmp_path: Path) -> None:
    done = run(SOURCE.parent, "fetch", tmp_path / "t", "--beside-engine")
    assert done.returncode == 2
    assert "which the role checkpoint installs" in done.stderr
