"""The engine of a converged pair, as tests ask it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lab.nodes import Node

UNIT: Final = "vllm-deepseek-mxfp4@lab-cpu.service"
# the recall model has seen k17 before v93
QUESTION: Final = {
    "model": "recall",
    "prompt": "w1 w2 k17 v93 w3 w4 k17",
    "max_tokens": 1,
    "temperature": 0,
}
RIGHT: Final = "v93"


def prop(node: Node, name: str) -> str:
    """A property of the engine's unit."""
    return node.text("systemctl", "show", UNIT, "--property", name, "--value")


def answer(node: Node) -> str:
    """What the head says to the question, or why it says nothing."""
    done = node.run(
        "curl", "--silent", "--show-error", "--max-time", "10",
        "http://10.77.0.11:8000/v1/completions",
        "--header", "Content-Type: application/json", "--data", json.dumps(QUESTION),
        check=False,
    )  # fmt: skip
    try:
        return str(json.loads(done.stdout)["choices"][0]["text"]).strip()
    except (json.JSONDecodeError, KeyError, IndexError):
        return f"{done.stdout}{done.stderr}"


def release(node: Node) -> str:
    """The release that the node's unit starts from."""
    return node.text("readlink", "/opt/twinspark/current").rsplit("/", 1)[-1]


def served(node: Node) -> str:
    """The release that the running engine was started from."""
    say = "import json; print(json.load(open('/run/twinspark/release.json'))['id'])"
    return node.text("python3", "-c", say)
