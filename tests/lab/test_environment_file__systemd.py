"""systemd is asked once, on a corpus: it reads env files as our reader does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from env import corpus, readers

pytestmark = pytest.mark.lab

LAB = Path(__file__).with_name("lab")
FILES = 60

# Runs on the node, as root: each file is the EnvironmentFile= of one transient unit.
ON_NODE = r"""
import json, subprocess, sys, tempfile
from pathlib import Path

def exported(path):
    command = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect"]
    if path:
        command.append(f"--property=EnvironmentFile={path}")
    done = subprocess.run([*command, "/usr/bin/env", "-0"], check=True, capture_output=True)
    entries = [entry.split(b"=", 1) for entry in done.stdout.split(b"\0") if entry]
    return {key.decode(): value.decode() for key, value in entries}

own = set(exported(None))
found = []
with tempfile.TemporaryDirectory() as folder:
    for number, text in enumerate(json.load(sys.stdin)):
        path = Path(folder, f"{number}.env")
        path.write_bytes(text.encode())
        found.append({key: value for key, value in exported(path).items() if key not in own})
json.dump(found, sys.stdout)
"""


def systemd(texts):
    """What a unit's process has in its environment, for each text as its EnvironmentFile=."""
    done = subprocess.run(
        [LAB, "exec", "spark1", "python3", "-c", ON_NODE],
        input=json.dumps(texts).encode(),
        capture_output=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture(scope="module", autouse=True)
def _running():
    if subprocess.run([LAB, "exec", "spark1", "true"], capture_output=True, check=False).returncode:
        pytest.fail("the lab is not up: tests/lab/lab up")


def test_environment_file__says_to_systemd_what_it_says_to_our_reader():
    files = corpus.generate(FILES)
    for (text, pairs), found in zip(files, systemd([text for text, _ in files]), strict=True):
        assert readers.ours(text) == pairs
        assert found == pairs, text


def test_environment_file__outside_the_grammar_is_read_otherwise_by_systemd():
    """What the reader refuses, it refuses for a reason: these two differ from bash."""
    swallowed, expanded = systemd(["# ends with \\\nKEY=1\n", "KEY=\"a$HOME\"\nB='x'y\n"])
    assert swallowed == {}
    assert expanded == {"KEY": "a$HOME", "B": "xy"}
