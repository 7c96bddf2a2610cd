"""Entry point `vllm.general_plugins`: called by vLLM in every process that it starts.

vLLM logs and forgets a plugin whose *import* fails, while an exception out of the plugin
*function* ends the process (plugins/__init__.py:57-89@0.27.1). So this module imports next to
nothing, and `register` raises.
"""

# ruff: noqa: PLC0415 - the module imports next to nothing, see above

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinspark.overrides import Overrides
    from twinspark.patching import Context, Overlay

_overlay: Overlay | None = None


def register() -> None:
    """Arm the overlay in this process. A second call does nothing.

    Raises:
        PatchError: The engine is not the one that the patches were written for.
    """
    global _overlay  # noqa: PLW0603 - one overlay a process, and vLLM may call more than once
    if _overlay is not None:
        return
    from vllm.version import __version__ as vllm_version

    from twinspark import overrides, patches, patching, report

    registry = patching.Registry(patches.load())
    chosen = overrides.from_environment(frozenset(registry.patches))
    record = report.from_environment(vllm_version, _own_version())
    overlay = patching.Overlay(registry, _context(chosen), record, chosen)
    report.use(record)  # before arming: a patch that is installed at once may already report
    with record.batch():
        overlay.arm(vllm_version)
    _overlay = overlay  # not before it is whole: a refusal must stay one
    os.register_at_fork(after_in_child=record.after_fork)


def _own_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("twinspark")
    except PackageNotFoundError:
        return "source"  # run from the tree, without being installed


def _context(chosen: Overrides) -> Context:
    from twinspark.patching import Context

    if chosen.platform is not None:
        return Context(chosen.platform, chosen.capability)
    from vllm.platforms import current_platform

    if not current_platform.is_cuda():
        return Context(str(current_platform.device_type or ""))
    # Through NVML on this platform: no CUDA context is made in a process that must not have one.
    found = current_platform.get_device_capability()
    return Context("cuda", (found.major, found.minor) if found else None)
