"""What a checkpoint is, and on which evidence.

Headers alone never say "0731": the -DSpark repository of 2026-07-04 has the same tensors, sizes,
config and index. Evidence from the strongest to the weakest: digests that were verified on this
machine, the README and the revision that it was downloaded from, the structure.
"""

from __future__ import annotations

import gc
import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinspark.checkpoint import known, stamp
from twinspark.checkpoint.errors import CannotRunError, CheckpointError
from twinspark.checkpoint.headers import Shard, read_header
from twinspark.checkpoint.manifest import MANIFEST_NAME, Manifest, read, scan
from twinspark.checkpoint.strict import Reader, read_small

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

INDEX_NAME = "model.safetensors.index.json"
KIND_0731, KIND_PREVIEW, KIND_DSPARK = "0731", "preview", "dspark"
KIND_TWINS = "0731-or-dspark"  # the structure fits both and nothing else speaks
KIND_LOOKALIKE = "lookalike"  # the structure of 0731 with other weights
KIND_OTHER = "other"
KIND_UNCLEAR = "contradictory"
KINDS = (
    KIND_0731,
    KIND_PREVIEW,
    KIND_DSPARK,
    KIND_TWINS,
    KIND_LOOKALIKE,
    KIND_OTHER,
    KIND_UNCLEAR,
)
NO_WEIGHTS = "{} holds no safetensors file: is it the checkpoint?"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation: its basis, what it says, and the kind that it speaks for, if any."""

    basis: str
    text: str
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
    """The outcome.

    Attributes:
        kind: One of the `KIND_*`.
        basis: The strongest basis of that verdict.
        evidence: All that was observed.
        problems: What is wrong with the files, one line each.
        tensors: Number of tensors; `drafts` of them are `mtp.*`.
        shard_bytes: Sum of the shards' sizes.
        dtypes: Bytes of weights by dtype.
    """

    kind: str
    basis: str
    evidence: tuple[Evidence, ...]
    problems: tuple[str, ...]
    shards: int
    shard_bytes: int
    tensors: int
    drafts: int
    architecture: str
    dtypes: dict[str, int] = field(default_factory=dict)


def inspect(root: Path) -> Inspection:
    """Read the headers, the index, the config and the README of a checkpoint, never its weights.

    Raises:
        CannotRunError: the directory or a file cannot be read, or there is no shard at all.
    """
    names = [path for path in scan(root) if path.endswith(".safetensors")]
    if not names:
        raise CannotRunError(NO_WEIGHTS.format(root))
    shards, problems = _read_shards(root, names)
    problems += _index_problems(root, shards, names)
    drafts, dtypes = 0, Counter[str]()
    for shard in shards.values():
        for tensor in shard.tensors:
            drafts += tensor.name.startswith(known.DRAFT_PREFIX)
            dtypes[tensor.dtype] += tensor.end - tensor.begin
    structure = known.Structure(
        len(names),
        sum((root / name).stat().st_size for name in names),
        sum(len(shard.tensors) for shard in shards.values()),
        drafts,
    )
    evidence = (
        _structure(structure),
        *_digests(root),
        *_readme(root),
        *_revision(root),
    )
    kind, basis = verdict(evidence)
    architecture = _architecture(root, problems)
    return Inspection(
        kind,
        basis,
        evidence,
        tuple(problems),
        structure.shards,
        structure.shard_bytes,
        structure.tensors or 0,
        drafts,
        architecture,
        dict(dtypes),
    )


def _read_shards(root: Path, names: list[str]) -> tuple[dict[str, Shard], list[str]]:
    """The headers that can be read, and a line for each that cannot."""
    shards: dict[str, Shard] = {}
    problems: list[str] = []
    collecting = gc.isenabled()
    gc.disable()  # a quarter of the time: 72,317 small objects, none of them garbage
    try:
        for name in names:
            try:
                shards[name] = read_header(root / name)
            except CheckpointError as error:
                problems.append(str(error))
    finally:
        if collecting:
            gc.enable()
    return shards, problems


def verdict(evidence: Iterable[Evidence]) -> tuple[str, str]:
    """The kind that the evidence supports, and the strongest basis for it."""
    spoken = {item.basis: item.kind for item in evidence if item.kind is not None}
    structure = spoken.get("structure", KIND_OTHER)
    words = {spoken[basis] for basis in ("README", "revision") if basis in spoken}
    if spoken.get("digests") == KIND_0731:
        return KIND_0731, "digests"  # the weights are the model, whatever a README beside them says
    fits = {
        KIND_0731: structure == KIND_TWINS,
        KIND_DSPARK: structure == KIND_TWINS,
        KIND_PREVIEW: structure == KIND_PREVIEW,
    }
    if spoken.get("digests") == KIND_LOOKALIKE:
        return (
            (KIND_DSPARK, "digests and README")
            if words == {KIND_DSPARK}
            else (KIND_LOOKALIKE, "digests")
        )
    if not words:
        return structure, "structure"
    if len(words) > 1 or not fits[next(iter(words))]:
        return KIND_UNCLEAR, "README or revision against structure"
    return words.pop(), " and ".join(basis for basis in ("README", "revision") if basis in spoken)


def _structure(found: known.Structure) -> Evidence:
    text = (
        f"{found.shards} shards, {found.shard_bytes} bytes, {found.tensors} tensors, "
        f"{found.drafts} of them {known.DRAFT_PREFIX}*"
    )
    if found == known.FLASH_0731_OR_DSPARK:
        return Evidence(
            "structure", f"{text}: 0731's, which the -DSpark repository shares", KIND_TWINS
        )
    preview = known.PREVIEW
    if (found.shards, found.shard_bytes, found.drafts) == (
        preview.shards,
        preview.shard_bytes,
        preview.drafts,
    ):
        return Evidence("structure", f"{text}: the preview's", KIND_PREVIEW)
    return Evidence("structure", f"{text}: none of the known three", KIND_OTHER)


def _digests(root: Path) -> tuple[Evidence, ...]:
    """What the manifest says, if these files were verified against it here and are unchanged."""
    try:
        stamp.check(root)
        manifest = read(root / MANIFEST_NAME)
    except (CheckpointError, CannotRunError):
        return (
            Evidence("digests", f"not verified here: run `twinspark checkpoint verify {root}`"),
        )
    return (judge_digests(manifest),)


def equal_shards(manifest: Manifest) -> int:
    """How many of 0731's shards the manifest holds, size and SHA-256."""
    return len(set(manifest.files) & set(known.SHARDS))


def judge_digests(manifest: Manifest) -> Evidence:
    """Hold verified digests against 0731's."""
    files = manifest.by_path()
    shards = [files[entry.path] for entry in known.SHARDS if entry.path in files]
    equal = equal_shards(manifest)
    total = len(known.SHARDS)
    if equal == total:
        return Evidence("digests", f"all {total} shards have 0731's SHA-256", KIND_0731)
    if len(shards) == total and all(e.size == known.FILES[e.path].size for e in shards):
        return Evidence(
            "digests",
            f"{equal} of {total} shards have 0731's SHA-256, all have its sizes",
            KIND_LOOKALIKE,
        )
    return Evidence(
        "digests", f"verified ({manifest.origin}), no published digests to hold them against"
    )


def _readme(root: Path) -> tuple[Evidence, ...]:
    path = root / "README.md"
    if not path.is_file():
        return (Evidence("README", "none"),)
    content = read_small(path)
    revision = known.READMES.get(hashlib.sha256(content).hexdigest())
    if revision is not None:
        return (Evidence("README", f"byte for byte that of 0731 at {revision}", KIND_0731),)
    text = content.decode("utf-8", errors="replace")
    title = next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), "")
    if "present a preview version" in text:
        return (Evidence("README", "presents a preview version", KIND_PREVIEW),)
    if "0731" in title:
        return (Evidence("README", f"is titled {title[:60]!r}", KIND_0731),)
    if "DSpark" in title:
        return (Evidence("README", f"is titled {title[:60]!r}", KIND_DSPARK),)
    return (Evidence("README", f"names none of the three (title {title[:60]!r})"),)


def _revision(root: Path) -> tuple[Evidence, ...]:
    """The commit that huggingface_hub noted beside its files, or its snapshot directory's name."""
    commits = {root.name} if len(root.name) == 40 and root.parent.name == "snapshots" else set()
    for path in sorted(
        (root / ".cache" / "huggingface" / "download").glob("*.safetensors.metadata")
    ):
        commits.add(read_small(path).split(b"\n", 1)[0].decode("utf-8", errors="replace").strip())
    return tuple(_judge_revision(commit) for commit in sorted(commits))


def _judge_revision(commit: str) -> Evidence:
    date = known.DATES.get(commit)
    if commit in known.REVISIONS:
        return Evidence("revision", f"downloaded from {commit[:8]} of {date}, 0731", KIND_0731)
    if commit == known.DSPARK_REVISION:
        return Evidence("revision", f"downloaded from {commit[:8]} of {date}, -DSpark", KIND_DSPARK)
    return Evidence("revision", f"downloaded from {commit[:40]!r}, which is not known here")


def _architecture(root: Path, problems: list[str]) -> str:
    path = root / "config.json"
    if not path.is_file():
        problems.append(f"{path} is missing: the engine cannot load this")
        return "unknown"
    try:
        value = Reader(str(path)).load(read_small(path)).get("architectures")
    except CheckpointError as error:
        problems.append(str(error))
        return "unknown"
    return str(value[0])[:80] if isinstance(value, list) and value else "unknown"


def weight_problems(root: Path, paths: Iterable[str]) -> list[str]:
    """What is wrong with the set of weight files, by their names and the index, if there is one.

    Every verification asks this, so it holds no header: of a model without an index it only asks
    that there be weights.
    """
    names = [path for path in paths if path.endswith(".safetensors")]
    if not names:
        return [NO_WEIGHTS.format(root)]
    try:
        listed = _read_index(root)
    except CheckpointError as error:
        return [str(error)]
    return [] if listed is None else _listing_problems(root, listed, names)


def _read_index(root: Path) -> dict[str, object] | None:
    """The index's shards by tensor, or None without an index.

    Raises:
        CheckpointError: it is no index.
    """
    path = root / INDEX_NAME
    if not path.is_file():
        return None
    reader = Reader(str(path))
    return reader.mapping(reader.load(read_small(path)).get("weight_map"), "`weight_map`")


def _listing_problems(root: Path, listed: dict[str, object], names: list[str]) -> list[str]:
    """Shards that the index names and that are not there, and the other way round."""
    path = root / INDEX_NAME
    problems = [
        f"{path} names {name[:80]!r}, which is missing"
        for name in sorted(set(map(str, listed.values())) - set(names))
    ]
    problems += [
        f"{root / name} is not in the index: layer nothing on a checkpoint, 0731 has its draft head"
        for name in sorted(set(names) - set(map(str, listed.values())))
    ]
    return problems


def _index_problems(root: Path, shards: dict[str, Shard], names: list[str]) -> list[str]:
    path = root / INDEX_NAME
    try:
        listed = _read_index(root)
    except CheckpointError as error:
        return [str(error)]
    if listed is None:
        return [] if len(names) == 1 else [f"{path} is missing: the shards cannot be told apart"]
    problems = _listing_problems(root, listed, names)
    held = {tensor.name: name for name, shard in shards.items() for tensor in shard.tensors}
    if sum(len(shard.tensors) for shard in shards.values()) != len(held):
        problems.append(f"{root}: a tensor lies in two shards")
    if len(shards) == len(names):
        wrong = [tensor for tensor in listed if held.get(tensor) != listed[tensor]]
        wrong += [tensor for tensor in held if tensor not in listed]
        if wrong:
            problems.append(
                f"{path}: {len(wrong)} tensors are not where it says, such as {min(wrong)[:80]!r}"
            )
    return problems
