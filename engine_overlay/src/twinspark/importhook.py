"""Call back right after a module has been executed, and never import one to do so."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class PostImportFinder(MetaPathFinder):
    """Finder that finds nothing itself: it lets the others find and watches the execution.

    It stands first on `sys.meta_path` and shadows `exec_module` on the one loader instance of an
    awaited module. When the callback raises, the import raises, the module does not stay in
    `sys.modules`, and the next import runs the callback again: a refused module stays refused.
    """

    def __init__(self) -> None:
        self._callbacks: dict[str, Callable[[ModuleType], None]] = {}
        self._finding: set[str] = set()

    def watch(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        """Call `callback(module)` when `name` has been executed; now, if it has been already.

        Raises:
            RuntimeError: The module is in the middle of its own execution.
        """
        module = sys.modules.get(name)
        if module is None:
            self._callbacks[name] = callback
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)
            return
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            raise RuntimeError(f"{name} is being imported right now: arm the overlay before")
        callback(module)

    def remove(self) -> None:
        """Leave `sys.meta_path` and forget every callback."""
        self._callbacks.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Let the other finders find an awaited module and shadow its loader's `exec_module`."""
        if fullname not in self._callbacks or fullname in self._finding:
            return None
        self._finding.add(fullname)
        try:
            spec = self._ask_others(fullname, path, target)
        finally:
            self._finding.discard(fullname)
        if spec is not None and spec.loader is not None:
            self._shadow(spec)
        return spec

    def _ask_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None

    def _shadow(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        original = loader.exec_module  # type: ignore[union-attr]  # find_spec has checked it

        def exec_module(module: ModuleType) -> None:
            original(module)
            callback = self._callbacks.get(spec.name)
            if callback is not None:
                callback(module)  # before forgetting it: a refusal must be repeated
                self._callbacks.pop(spec.name, None)
            vars(loader).pop("exec_module", None)

        loader.exec_module = exec_module  # type: ignore[union-attr,method-assign]
