"""The header reader: agrees with the safetensors package, and survives hostile files."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from checkpoint.builders import raw_shard, shard
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.headers import LARGEST_HEADER, read_header

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


def header(**tensors: object) -> bytes:
    return json.dumps(tensors).encode()


def test_reader__sees_what_the_package_wrote(tmp_path: Path) -> None:
    arrays = {
        "a": np.zeros((3, 5), np.float32),
        "empty": np.zeros((0, 7), np.float16),
        "scalar": np.array(3, np.int64),
        "mtp.0.x": np.ones((2, 2), np.uint8),
    }
    path = tmp_path / "x.safetensors"
    save_file(arrays, path, metadata={"format": "np"})
    read = read_header(path)
    with safe_open(path, "np") as package:
        assert {tensor.name for tensor in read.tensors} == set(package.keys())
        for tensor in read.tensors:
            assert list(tensor.shape) == package.get_slice(tensor.name).get_shape()
            assert tensor.end - tensor.begin == arrays[tensor.name].nbytes
    assert read.payload == sum(array.nbytes for array in arrays.values())


@pytest.mark.parametrize(
    ("content", "data", "complaint"),
    [
        (header(a=GOOD, b=GOOD), b"0123", "overlaps"),
        (header(a=GOOD, b={**GOOD, "data_offsets": [6, 10]}), b"0" * 10, "hole of 2 bytes"),
        (header(a=GOOD), b"012", "truncated by 1 bytes"),
        (header(a=GOOD), b"01234", "accounts for 4 bytes of data, the file has 5"),
        (b'{"a": {}, "a": {}}', b"", "key 'a' twice"),
        (b'{"\xff\xfe": 1}', b"", "is not UTF-8 at byte 2"),
        (b"not json", b"", "does not begin with `{`"),
        (b"{not json", b"", "is not JSON"),
        (b'{"a":' + b"[" * 50_000, b"", "nested too deeply"),
        (header(a={**GOOD, "dtype": "F128"}), b"0123", "unknown dtype 'F128'"),
        (header(a={**GOOD, "dtype": 7}), b"0123", "needs exactly"),
        (header(a={**GOOD, "extra": 7}), b"0123", "needs exactly"),
        (header(a={**GOOD, "shape": [-4]}), b"0123", "non-negative"),
        (header(a={**GOOD, "shape": [True, 4]}), b"0123", "non-negative"),
        (header(a={**GOOD, "shape": [4.0]}), b"0123", "non-negative"),
        (header(a={**GOOD, "shape": [2**63, 2**63]}), b"0123", "does not fill its bytes"),
        (header(a={**GOOD, "data_offsets": [4, 0]}), b"0123", "does not fill its bytes"),
        (header(a={**GOOD, "data_offsets": [0]}), b"0123", "non-negative"),
        (header(a=[1]), b"", "is not an object"),
        (header(__metadata__={"x": 1}), b"", "other than text"),
        (b'{"a": {"dtype": "U8", "shape": [%b]}}' % (b"9" * 5000), b"", "is not JSON"),
    ],
)  # fmt: skip
def test_hostile_header__gives_one_clear_line(
    tmp_path: Path, content: bytes, data: bytes, complaint: str
) -> None:
    path = raw_shard(tmp_path / "x.safetensors", content, data)
    with pytest.raises(CheckpointError, match=complaint) as caught:
        read_header(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("length", "complaint"),
    [(2**63, "above"), (LARGEST_HEADER + 1, "above"), (10**7, "wrong length or truncated")],
)
def test_header_length__that_lies_is_refused_before_anything_is_read(
    tmp_path: Path, length: int, complaint: str
) -> None:
    path = raw_shard(tmp_path / "x.safetensors", header(a=GOOD), b"0123", length=length)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=complaint):
            read_header(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20  # bytes; a read takes its memory before it knows how much there is


def test_header_length__off_by_one_is_told(tmp_path: Path) -> None:
    content = header(a=GOOD)
    with pytest.raises(CheckpointError, match="is not JSON"):
        read_header(
            raw_shard(tmp_path / "a.safetensors", content, b"0123", length=len(content) - 1)
        )
    with pytest.raises(CheckpointError, match="is not JSON"):
        read_header(
            raw_shard(tmp_path / "b.safetensors", content, b"0123", length=len(content) + 1)
        )


def test_empty_file__is_too_short(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="too short for a shard"):
        read_header(tmp_path / "x.safetensors")


def test_missing_file__could_not_run(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match="cannot be read"):
        read_header(tmp_path / "x.safetensors")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_mutated_shard__is_accepted_only_where_the_package_accepts_it(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = shard(
        tmp_path / "x.safetensors", {"a": ("U8", [4], b"0123"), "b": ("F32", [1], b"4567")}
    )
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 9))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        read_header(path)
    except CheckpointError:
        return
    try:
        with safe_open(path, "np"):
            pass
    except SafetensorError as error:  # pragma: no cover - a failure prints it
        pytest.fail(f"accepted what the package refuses: {error}")
