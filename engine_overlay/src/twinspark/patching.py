"""The overlay's core: what a patch is, when it may be installed, and how it gets there.

A `Patch` is a record plus a function. It is armed by name, without importing its target; when the
engine imports the target module, the source under the patch is compared with the source that the
patch was written against, and only then is it installed. Everything that does not fit raises: a
process serves with all its patches or not at all.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinspark import sources
from twinspark.importhook import PostImportFinder
from twinspark.overrides import Overrides

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from twinspark.report import Report

logger = logging.getLogger("vllm.twinspark")  # under vLLM's logger: its handlers print it

# Where a patch sits from cold boot to served token; the order is the order of the documents.
LAYERS = ("config", "platform", "kv_layout", "allocator", "metadata", "graphs", "executor")


class PatchError(RuntimeError):
    """The overlay cannot be installed as a whole; the process must not serve."""


@dataclass(frozen=True, slots=True)
class Context:
    """What decides whether a patch applies to this process.

    Attributes:
        platform: `cuda`, `cpu`, ... as the engine resolved it; empty when it found none.
        capability: CUDA compute capability `(major, minor)`, or None.
    """

    platform: str
    capability: tuple[int, int] | None = None

    def unless_cuda(self, reason: str) -> str | None:
        """Reason to skip a patch that only acts on CUDA, or None on CUDA."""
        if self.platform == "cuda":
            return None
        return f"platform {self.platform or 'unspecified'}: {reason}"

    def unless_sm12x(self, reason: str) -> str | None:
        """Reason to skip a patch that only acts on compute capability 12.x, or None there."""
        if self.platform == "cuda" and self.capability and self.capability[0] == 12:
            return None
        where = ".".join(map(str, self.capability)) if self.capability else self.platform
        return f"not compute capability 12.x but {where or 'unspecified'}: {reason}"


@dataclass(frozen=True, slots=True)
class Patch:
    """One finding and its repair.

    Attributes:
        id: Stable name, `<row>-<words>`.
        title: One line for tables.
        layer: One of `LAYERS`.
        targets: `module:qualname` of everything that the patch replaces; it owns them.
        upstream_sha256: Digest of the source text of each target, and of each further
            `module:qualname` that the repair relies on without replacing it.
        vllm: Public versions that the patch was written for.
        symptom: What an operator sees.
        cause: Why, with file:line in the stock wheel.
        fix: What the patch does.
        upstream: What upstream has done since.
        remove_when: When the patch has expired.
        constraint: The fact of GB10 or SM121 that it serves.
        applies: Gives the reason to skip it in a context, or None.
        install: Replaces the targets of one module through an `Edit`; called once a module.
    """

    id: str
    title: str
    layer: str
    targets: tuple[str, ...]
    upstream_sha256: Mapping[str, str]
    vllm: tuple[str, ...]
    symptom: str
    cause: str
    fix: str
    upstream: str
    remove_when: str
    constraint: str
    applies: Callable[[Context], str | None]
    install: Callable[[Edit], None]

    def modules(self) -> tuple[str, ...]:
        """Modules that hold the patch's targets, each once, in order."""
        return tuple(dict.fromkeys(sources.split(target)[0] for target in self.targets))


class State(Enum):
    """State of a patch in one process."""

    ARMED = "armed"
    APPLIED = "applied"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(slots=True)
class Edit:
    """Handle through which a patch replaces its own targets in one module, and nothing else."""

    patch: Patch
    module: ModuleType
    undo: list[tuple[Any, str, Any]] = field(default_factory=list)

    def _owner(self, qualname: str) -> tuple[Any, str]:
        *path, name = qualname.split(".")
        owner: Any = self.module
        for part in path:
            owner = getattr(owner, part)
        return owner, name

    def original(self, qualname: str) -> Any:  # noqa: ANN401 - whatever the engine holds there
        """What the engine has under a name of this module; not bound to an instance."""
        owner, name = self._owner(qualname)
        return inspect.getattr_static(owner, name)

    def replace(self, qualname: str, new: Any) -> None:  # noqa: ANN401 - see original
        """Replace a target of the patch in this module.

        Raises:
            PatchError: The patch does not own the name.
        """
        target = f"{self.module.__name__}:{qualname}"
        if target not in self.patch.targets:
            raise PatchError(f"{self.patch.id} replaces {target}, which it does not own")
        owner, name = self._owner(qualname)
        self.undo.append((owner, name, inspect.getattr_static(owner, name)))
        setattr(owner, name, new)


class Registry:
    """All patches of the overlay; refuses two owners of one target."""

    def __init__(self, patches: Iterable[Patch]) -> None:
        self.patches: dict[str, Patch] = {}
        owners: dict[str, str] = {}
        for patch in patches:
            if patch.id in self.patches:
                raise PatchError(f"two patches are called {patch.id}")
            if patch.layer not in LAYERS:
                raise PatchError(f"{patch.id}: layer {patch.layer!r} is not one of {LAYERS}")
            for target in patch.targets:
                if target in owners:
                    raise PatchError(f"{target} is owned by {owners[target]} and by {patch.id}")
                if target not in patch.upstream_sha256:
                    raise PatchError(f"{patch.id}: no source hash for {target}")
                owners[target] = patch.id
            self.patches[patch.id] = patch


def public(version: str) -> str:
    """Public part of a version: the CPU build's `0.27.1+cpu` is `0.27.1`."""
    return version.partition("+")[0]


class Overlay:
    """A registry at work in one process."""

    def __init__(
        self,
        registry: Registry,
        context: Context,
        report: Report,
        overrides: Overrides | None = None,
    ) -> None:
        self.registry = registry
        self.context = context
        self.report = report
        self.overrides = overrides or Overrides()
        self.finder = PostImportFinder()
        self._waiting: dict[str, set[str]] = {}  # patch id -> modules not yet seen
        self._undo: list[tuple[Any, str, Any]] = []

    def arm(self, version: str) -> None:
        """Arm every patch that applies; install at once where the target is loaded already.

        Raises:
            PatchError: Another vLLM version, a missing target or a differing source.
        """
        patches = self.registry.patches.values()
        for patch in patches:
            self._decide(patch, version)
        for module in dict.fromkeys(name for patch in patches for name in patch.modules()):
            if any(module in waiting for waiting in self._waiting.values()):
                self.finder.watch(module, self._imported)

    def uninstall(self) -> None:
        """Put every original back and stop watching imports (for tests)."""
        self.finder.remove()
        while self._undo:
            owner, name, original = self._undo.pop()
            setattr(owner, name, original)
        self._waiting.clear()

    def _decide(self, patch: Patch, version: str) -> None:
        reason = patch.applies(self.context)
        if patch.id in self.overrides.skips:
            reason = "left out by override"
            logger.warning("TWINSPARK OVERRIDE: patch %s is left out", patch.id)
        if reason is not None:
            self.report.patch(patch, State.SKIPPED, reason)
            return
        if public(version) not in patch.vllm and not self.overrides.any_version:
            reason = f"written for vLLM {', '.join(patch.vllm)}, found {version}"
            self._fail(patch, reason)
        self._waiting[patch.id] = set(patch.modules())
        self.report.patch(patch, State.ARMED, "waits for " + ", ".join(patch.modules()))

    def _fail(self, patch: Patch, reason: str) -> None:
        self.report.patch(patch, State.FAILED, reason)
        logger.error("TWINSPARK: patch %s cannot be installed: %s", patch.id, reason)
        raise PatchError(f"{patch.id}: {reason}")

    def _imported(self, module: ModuleType) -> None:
        for patch in self.registry.patches.values():
            waiting = self._waiting.get(patch.id, set())
            if module.__name__ in waiting:
                self._install(patch, module)
                waiting.discard(module.__name__)
                self._tell(patch, waiting)

    def _tell(self, patch: Patch, waiting: set[str]) -> None:
        if waiting:
            self.report.patch(patch, State.ARMED, "waits for " + ", ".join(sorted(waiting)))
        else:
            override = " (source hash overridden)" if patch.id in self.overrides.hashes else ""
            self.report.patch(patch, State.APPLIED, f"installed{override}")

    def _install(self, patch: Patch, module: ModuleType) -> None:
        self._verify(patch, module)
        edit = Edit(patch, module)
        try:
            patch.install(edit)
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            self._fail(patch, f"install in {module.__name__} raised {error!r}")
        finally:
            self._undo.extend(edit.undo)
        logger.info("twinspark: patch %s applied to %s", patch.id, module.__name__)

    def _verify(self, patch: Patch, module: ModuleType) -> None:
        """Compare every source text that the patch replaces here or relies on anywhere."""
        path = Path(inspect.getsourcefile(module) or "")
        root = path.parents[module.__name__.count(".") + (path.name == "__init__.py")]
        later = set(patch.modules()) - {module.__name__}
        for target, expected in patch.upstream_sha256.items():
            name, qualname = sources.split(target)
            if name in later:
                continue  # compared when that module comes
            found = sources.digest_in(root, target)
            if found is None:
                self._fail(patch, f"{target} does not exist under {root}")
            elif found != expected:
                message = f"source of {target} is {found[:12]}, not {expected[:12]}"
                if patch.id not in self.overrides.hashes:
                    self._fail(patch, message)
                logger.warning("TWINSPARK OVERRIDE: patch %s: %s", patch.id, message)
            if target in patch.targets:
                self._foreign(patch, module, qualname, path)

    def _foreign(self, patch: Patch, module: ModuleType, qualname: str, path: Path) -> None:
        """Refuse a function that somebody else has replaced before us."""
        live: Any = module
        for part in qualname.split("."):
            live = inspect.getattr_static(live, part, None)
        code = getattr(getattr(live, "__func__", live), "__code__", None)
        defined_here = (sources.source_of(path, qualname) or "").startswith("from ") is False
        if code is not None and defined_here and Path(code.co_filename) != path:
            self._fail(patch, f"{qualname} was already replaced from {code.co_filename}")
