"""Small checkpoints on disk for the tests, made without the safetensors package."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INDEX = "model.safetensors.index.json"


def raw_shard(path: Path, header: bytes, data: bytes = b"", length: int | None = None) -> Path:
    """A file with this header, whatever it says."""
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)
    return path


def shard(path: Path, tensors: Mapping[str, tuple[str, list[int], bytes]]) -> Path:
    """A well-formed shard of tensors (dtype, shape, bytes)."""
    entries, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        entries[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    header = json.dumps(entries).encode()
    return raw_shard(path, header + b" " * (-len(header) % 8), data)


def checkpoint(root: Path, *, shards: int = 3, size: int = 40_000, seed: int = 7) -> Path:
    """A directory like a model's: shards, an index, a config, an empty file in a folder."""
    random = Random(seed)  # noqa: S311 - the same bytes every time
    root.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    for number in range(1, shards + 1):
        name = f"model-{number:05d}-of-{shards:05d}.safetensors"
        tensors = {}
        for position in range(3):
            stem = "mtp" if number == shards else "layers"
            tensor = f"{stem}.{number}.{position}.weight"
            tensors[tensor] = ("U8", [size], random.randbytes(size))
            weight_map[tensor] = name
        shard(root / name, tensors)
    (root / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (root / "config.json").write_text(json.dumps({"architectures": ["DeepseekV4ForCausalLM"]}))
    (root / "encoding").mkdir(exist_ok=True)
    (root / "encoding" / "empty.txt").write_text("")
    return root


def flip(path: Path, offset: int = -1) -> None:
    """Flip one bit, in place."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def sparse_model(
    root: Path, *, tensors: int = 72_317, drafts: int = 4_705, shards: int = 48
) -> int:
    """A model of the real one's shape, as sparse files: true headers, no data on the disk.

    Returns the bytes that the files claim to have, which are the real ones.
    """
    from twinspark.checkpoint import known  # noqa: PLC0415 - the package under test

    root.mkdir(parents=True, exist_ok=True)
    stems = ["mtp"] * drafts + ["layers"] * (tensors - drafts)
    names = [
        f"{stem}.{number % 43}.ffn.experts.{number}.weight" for number, stem in enumerate(stems)
    ]
    weight_map, total = {}, 0
    for position, entry in enumerate(known.SHARDS[:shards]):
        mine = names[position::shards]
        weight_map |= dict.fromkeys(mine, entry.path)
        total += _sparse_shard(root / entry.path, mine, entry.size)
    (root / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (root / "config.json").write_text(json.dumps({"architectures": ["DeepseekV4ForCausalLM"]}))
    return total


def _sparse_shard(path: Path, names: list[str], size: int) -> int:
    """One sparse shard of exactly `size` bytes: the header is padded with blanks until all fits."""
    length = 8 * (len(names) * 22)  # more than the header needs
    each, rest = divmod(size - 8 - length, len(names))
    entries, begin = {}, 0
    for number, name in enumerate(names):
        end = begin + each + (rest if number == len(names) - 1 else 0)
        entries[name] = {"dtype": "I8", "shape": [end - begin], "data_offsets": [begin, end]}
        begin = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    assert len(header) <= length, (len(header), length)
    raw_shard(path, header.ljust(length))
    with path.open("r+b") as stream:
        stream.truncate(size)
    return size
