"""Source text of a function, class or imported name of an installed module, without importing it.

The overlay replaces code whose text it has read. These helpers say what that text is, so that a
patch can refuse when the installed engine holds another one. They work on files, not on live
objects: a live object may already be wrapped.
"""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def split(target: str) -> tuple[str, str]:
    """Split a target `package.module:Qualified.name` into module and qualified name.

    Raises:
        ValueError: The target has no or more than one colon, or an empty side.
    """
    module, colon, qualname = target.partition(":")
    if not (module and colon and qualname) or ":" in qualname:
        raise ValueError(f"target {target!r} is not of the form 'package.module:Qualified.name'")
    return module, qualname


@lru_cache(maxsize=64)
def _tree(path: Path, _mtime_ns: int) -> tuple[str, ast.Module]:
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text, filename=str(path))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, those under `if` and `try` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handlers = [line for handler in node.handlers for line in handler.body]
            yield from _statements([*node.body, *handlers, *node.orelse, *node.finalbody])


def _binds(node: ast.stmt, name: str) -> bool:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name == name
        case ast.Assign():
            return any(isinstance(item, ast.Name) and item.id == name for item in node.targets)
        case ast.AnnAssign():
            return isinstance(node.target, ast.Name) and node.target.id == name
        case ast.ImportFrom():
            return any((alias.asname or alias.name) == name for alias in node.names)
    return False


def _text_of(node: ast.stmt, name: str, text: str) -> str:
    if isinstance(node, ast.ImportFrom):
        # Only what is bound counts: neighbours in the same import list may come and go.
        alias = next(item for item in node.names if (item.asname or item.name) == name)
        renamed = f" as {alias.asname}" if alias.asname else ""
        return f"from {'.' * node.level}{node.module or ''} import {alias.name}{renamed}\n"
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
    return "".join(text.splitlines(keepends=True)[first - 1 : node.end_lineno])


def source_of(path: Path, qualname: str) -> str | None:
    """Text that binds a name in a source file; decorators included.

    Args:
        path: A Python source file.
        qualname: Dotted name inside it, such as `KVBlockZeroer.zero_block_ids`. A name that the
            file imports gives its import statement, reduced to that one name.

    Returns:
        The text, or None when the file does not bind the name.
    """
    text, tree = _tree(path, path.stat().st_mtime_ns)
    body = tree.body
    *classes, last = qualname.split(".")
    for name in classes:
        owner = next((n for n in _statements(body) if _binds(n, name)), None)
        if not isinstance(owner, ast.ClassDef):
            return None
        body = owner.body
    found = [node for node in _statements(body) if _binds(node, last)]
    # The last binding wins at run time (a name defined in both arms of an `if` is one text).
    return "".join(_text_of(node, last, text) for node in found) or None


def digest(text: str) -> str:
    """SHA-256 of a source text, as lower-case hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_of(module: str, root: Path) -> Path:
    """Path of a module's source file under a folder that holds its top package."""
    base = root.joinpath(*module.split("."))
    package = base / "__init__.py"
    return package if package.is_file() else base.with_suffix(".py")


def digest_in(root: Path, target: str) -> str | None:
    """Digest of a target in an unpacked wheel; None when the file or the name is missing."""
    module, qualname = split(target)
    path = file_of(module, root)
    if not path.is_file():
        return None
    text = source_of(path, qualname)
    return None if text is None else digest(text)
