"""Reading a safetensors header: names, types and shapes, never the weights.

The `safetensors` package is not used: it is not there on a bare node, and its one-word errors
("HeaderTooLarge") tell a person neither the file nor the remedy. The tests hold this reader
against it.
Source: the format's description, huggingface/safetensors README: 8 bytes little-endian length,
JSON, data.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.strict import Reader

if TYPE_CHECKING:
    from pathlib import Path

# The largest header of the real model is about 0.3 MB. The format allows 100 MB, which as Python
# objects is 1 GB.
LARGEST_HEADER = 16 * 2**20

# Bits an element. Source: safetensors 0.8.0, `Dtype`; F4 is packed two to a byte.
DTYPE_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: dtype as safetensors names it, shape, and bytes [begin, end) of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Shard:
    """One file: sizes of itself and its header in bytes, its tensors in the order of their data."""

    path: Path
    size: int
    header: int
    tensors: tuple[Tensor, ...]

    @property
    def payload(self) -> int:
        """Bytes of tensor data."""
        return self.size - 8 - self.header


def read_header(path: Path) -> Shard:
    """Read and check one shard's header.

    Raises:
        CannotRunError: the file cannot be read.
        CheckpointError: the header lies, or the file is not as long as the header says.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            length = _length(path, size, stream.read(8))
            raw = stream.read(length)
    except OSError as error:
        raise CannotRunError(f"{path} cannot be read: {error.strerror}") from error
    reader = Reader(f"{path}: header")
    if not raw.startswith(b"{"):
        raise reader.fail("does not begin with `{`: wrong length, or no safetensors file")
    try:
        document = reader.load(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise reader.fail(f"is not UTF-8 at byte {error.start}") from error
    tensors = _tensors(reader, document)
    _check_layout(reader, tensors, size - 8 - length)
    return Shard(path, size, length, tensors)


def _length(path: Path, size: int, first: bytes) -> int:
    if len(first) < 8:
        raise CheckpointError(f"{path} has {size} bytes: too short for a shard, fetch it again")
    length = int.from_bytes(first, "little")
    if length > LARGEST_HEADER:
        raise CheckpointError(
            f"{path}: claims a header of {length} bytes, above {LARGEST_HEADER}: no shard"
        )
    if length > size - 8:
        raise CheckpointError(
            f"{path}: claims a header of {length} bytes, but {size - 8} follow: "
            "wrong length or truncated, fetch it again"
        )
    return length


def _tensors(reader: Reader, document: dict[str, object]) -> tuple[Tensor, ...]:
    found = []
    for name, value in document.items():
        if name == "__metadata__":
            metadata = reader.mapping(value, "`__metadata__`")
            if not all(isinstance(text, str) for text in metadata.values()):
                raise reader.fail("`__metadata__` holds something other than text")
            continue
        if not isinstance(value, dict):
            raise reader.fail(f"{_label(name)} is not an object")
        found.append(_tensor(reader, name, value))
    found.sort(key=_begin)
    return tuple(found)


def _begin(tensor: Tensor) -> tuple[int, int]:
    return tensor.begin, tensor.end


def _label(name: str) -> str:
    return f"tensor {name[:80]!r}"


def _tensor(reader: Reader, name: str, entry: dict[str, object]) -> Tensor:
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if len(entry) != 3 or not isinstance(dtype, str):
        raise reader.fail(f"{_label(name)} needs exactly dtype, shape and data_offsets")
    bits = DTYPE_BITS.get(dtype)
    if bits is None:
        raise reader.fail(f"{_label(name)} has the unknown dtype {dtype[:40]!r}")
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        raise reader.fail(
            f"{_label(name)}: shape or data_offsets is no list of non-negative integers"
        )
    begin, end = offsets
    # `prod` of Python integers cannot overflow; a shape that is absurd simply does not fit its
    # offsets
    if end < begin or math.prod(shape) * bits != (end - begin) * 8:
        raise reader.fail(
            f"{_label(name)}: {dtype}{list(shape)} does not fill its bytes {begin} to {end}"
        )
    return Tensor(name, dtype, tuple(shape), begin, end)


def _counts(value: object) -> TypeGuard[list[int]]:
    if not isinstance(value, list):
        return False
    for item in value:  # noqa: SIM110 - a generator would double the time of an inspection
        if type(item) is not int or item < 0:
            return False
    return True


def _check_layout(reader: Reader, tensors: tuple[Tensor, ...], payload: int) -> None:
    """The format demands that the data be covered once and wholly: no overlap, hole or tail."""
    position = 0
    for tensor in tensors:
        if tensor.begin < position:
            raise reader.fail(
                f"{_label(tensor.name)} overlaps the one before it at byte {tensor.begin}"
            )
        if tensor.begin > position:
            raise reader.fail(
                f"has a hole of {tensor.begin - position} bytes before {_label(tensor.name)}"
            )
        position = tensor.end
    if position > payload:
        raise reader.fail(
            f"promises {position} bytes of data, the file has {payload}: "
            f"truncated by {position - payload} bytes, fetch it again"
        )
    if position < payload:
        raise reader.fail(f"accounts for {position} bytes of data, the file has {payload}")
