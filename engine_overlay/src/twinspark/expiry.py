"""Which patches a later wheel has made superfluous, read from its files without running it.

Two signs: the source under a patch (same, changed, gone), and for the rows whose repair upstream is
known, a mark that only the repaired source has. A mark found means: try the upgrade without this
patch, its `reproduces` test decides.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark import patches, sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinspark.patching import Patch


@dataclass(frozen=True, slots=True)
class Mark:
    """What the repaired source has and the faulty one has not.

    Attributes:
        where: Target whose text is searched; or a folder, when it ends with a slash.
        pattern: Regular expression over the text, or over the folder's file names.
        absent: The mark is that the pattern is *not* found (in an existing source).
    """

    where: str
    pattern: str
    absent: bool = False


DEEP_GEMM = Mark("vllm/third_party/deep_gemm/", r"sm120")
MARKS: dict[str, Mark] = {
    "w1-w2-refusals": DEEP_GEMM,
    "w3-hc-prenorm": DEEP_GEMM,
    "w4-o-proj": DEEP_GEMM,
    "w5-indexer-logits": DEEP_GEMM,
    "02-block-size": Mark(
        "vllm.v1.kv_cache_interface:MLAAttentionSpec.__post_init__", r"raise ValueError"
    ),
    "03-draft-width": Mark(
        "vllm.v1.attention.backends.mla.sparse_swa:DeepseekSparseSWAMetadataBuilder.__init__",
        r"\* 128\s*$|, 128\) \* 128",
        absent=True,
    ),
    "04b-first-failure": Mark(
        "vllm.v1.executor.multiproc_executor:MultiprocExecutor.collective_rpc",
        r"for mq in response_mqs",
        absent=True,
    ),
    "06-device-memory": Mark(
        "vllm.platforms.cuda:NvmlCudaPlatform.get_device_total_memory", r"NVMLError|except"
    ),
    "08-startup-plan": Mark(
        "vllm.v1.worker.startup_plan:maybe_save_startup_plan",
        r"compute_plan_fingerprint",
        absent=True,
    ),
    "11-decode-boundary": Mark(
        "vllm.v1.attention.backends.mla.indexer:DeepseekV32IndexerMetadataBuilder.__init__",
        r"max_decode_query_len",
    ),
    "12-block-zeroer": Mark("vllm.v1.worker.utils:_zero_kv_blocks_kernel", r"stride"),
    "12b-recycled-blocks": Mark(
        "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.__init__",
        r"isinstance\(\s*kv_cache_spec,\s*AttentionSpec",
    ),
    "13-c128a-stride": Mark(
        "vllm.models.deepseek_v4.sparse_mla:build_c128a_topk_metadata",
        r"global_decode_buffer\.view\(-1\)",
        absent=True,
    ),
    "exit-status": Mark(
        "vllm.entrypoints.launcher:serve_http", r"engine_client\.errored|SystemExit|sys\.exit"
    ),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a wheel's files say about one patch.

    Attributes:
        id: The patch.
        fixed: The mark of the repaired source was found; None where no mark is known.
        same: Pinned sources that are unchanged.
        changed: Pinned sources with another text.
        gone: Pinned sources that no longer exist under their name.
    """

    id: str
    fixed: bool | None
    same: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def word(self) -> str:
        """One word for a table."""
        if self.fixed:
            return "fixed"
        if not self.changed and not self.gone:
            return "needed"
        return "read"


@contextmanager
def unpacked(wheel: Path) -> Iterator[Path]:
    """Folder with a wheel's files: the folder itself, or a temporary one."""
    if wheel.is_dir():
        yield wheel
        return
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        wanted = [
            name
            for name in archive.namelist()
            if name.endswith(".py") or "third_party/deep_gemm/" in name
        ]
        archive.extractall(folder, wanted)
        yield Path(folder)


def _found(mark: Mark, root: Path) -> bool:
    if mark.where.endswith("/"):
        return any(re.search(mark.pattern, path.name) for path in (root / mark.where).rglob("*"))
    module, qualname = sources.split(mark.where)
    path = sources.file_of(module, root)
    text = sources.source_of(path, qualname) if path.is_file() else None
    if text is None:
        return False
    return (re.search(mark.pattern, text, re.MULTILINE) is None) is mark.absent


def judge(patch: Patch, root: Path) -> Verdict:
    """What a wheel's files say about a patch."""
    state: dict[str, list[str]] = {"same": [], "changed": [], "gone": []}
    for target, expected in patch.upstream_sha256.items():
        digest = sources.digest_in(root, target)
        word = "gone" if digest is None else "same" if digest == expected else "changed"
        state[word].append(target)
    mark = MARKS.get(patch.id)
    fixed = None if mark is None else _found(mark, root)
    return Verdict(patch.id, fixed, *(tuple(state[word]) for word in ("same", "changed", "gone")))


def judge_wheel(wheel: Path) -> list[Verdict]:
    """Verdicts of all patches for a wheel file or an unpacked one."""
    with unpacked(wheel) as root:
        return [judge(patch, root) for patch in patches.load()]
