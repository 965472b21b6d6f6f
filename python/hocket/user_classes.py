"""Classes that users write in files of their own, by the name given on a command line: FILE.py[:CLASS].

What the files define and why is the caller's; it also says by which error a file is refused.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeVar

from hocket.errors import Error, UsageError

T = TypeVar("T")

HOCKET = str(Path(__file__).parent)
"""Directory of this package: lines outside of it are a user's."""


class Refusal(Protocol):
    """Error about a file of the user's, with the line if it is known."""

    def __call__(self, message: str, *, file: str | None = None, line: int | None = None) -> Error:
        """Make it, ready to raise."""


def chosen(name: str, of: type[T], *, what: str, known: Sequence[str], refuse: Refusal) -> type[T]:
    """Run the file of `name`, and return the class in it that is named, or the only one.

    Args:
        name: FILE.py[:CLASS].
        of: the class that it inherits from.
        what: such a class in a word, such as `policy`.
        known: names of those that need no file.
        refuse: makes the error if the file cannot be loaded.

    Raises UsageError if there is no such file or class.
    """
    path, _, wanted = name.partition(":")
    source(name, what=what, known=known)
    held = vars(_module(Path(path), what, refuse))
    defined = {
        key: each
        for key, each in held.items()
        if inspect.isclass(each) and issubclass(each, of) and each.__module__ == held["__name__"]
    }
    inherits = f"a class that inherits from hocket.{of.__name__}"
    if wanted in held and wanted not in defined:
        raise UsageError(f"{path}: {wanted} is no {what}\nhint: {inherits}, and is defined in this file")
    if not defined:
        raise UsageError(f"{path} defines no {what}\nhint: {inherits}")
    if wanted and wanted not in defined:
        raise UsageError(f"{path} has no {what} {wanted}\nhint: it has {', '.join(defined)}")
    if not wanted and len(defined) > 1:
        raise UsageError(f"{path}: which {what}? There are: {', '.join(defined)}\nhint: write {path}:CLASS")
    return defined[wanted or next(iter(defined))]


def look(name: str, *, of: type, what: str, known: Sequence[str], refuse: Refusal) -> None:
    """Check that a class exists, without running its file, which may need a rank's resources. Errors as for `chosen`."""
    path, _, wanted = name.partition(":")
    text = source(name, what=what, known=known)
    try:
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise refuse(f"{path} cannot be loaded: it is no Python: {error}", file=path, line=line) from None
    classes = {each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef)}
    if not classes:
        raise UsageError(f"{path} defines no {what}\nhint: a class that inherits from hocket.{of.__name__}")
    if wanted and wanted not in classes:
        raise UsageError(f"{path} has no class {wanted}\nhint: it has {', '.join(sorted(classes))}")


def source(name: str, *, what: str, known: Sequence[str]) -> bytes:
    """Return the text of a file. UsageError: there is none."""
    path = name.partition(":")[0]
    if not path.endswith(".py"):
        raise UsageError(f"there is no {what} `{name}`\nhint: {', '.join(known)}, or FILE.py[:CLASS]")
    if not Path(path).is_file():
        raise UsageError(f"there is no {what} file {path}\nhint: a path from {Path.cwd()}, or a whole one")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{what} file {path} cannot be read: {error.strerror}") from None


def line_of(error: BaseException, file: str) -> tuple[str, int] | None:
    """Return the user's file and line by which an error came about: the innermost line of this file, else of any outside Hocket.

    None: there is none.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return error.filename, error.lineno or 0
    lines = []
    at = error.__traceback__
    while at is not None:
        lines.append((at.tb_frame.f_code.co_filename, at.tb_lineno))
        at = at.tb_next
    own = [each for each in lines if each[0] == file]
    others = [each for each in lines if not each[0].startswith((HOCKET, "<"))]
    return next(reversed(own or others), None)


def _module(path: Path, what: str, refuse: Refusal) -> ModuleType:
    """Run a file as a module."""
    name = f"hocket_{what}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or spec.origin is None:
        raise UsageError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        file, line = line_of(error, spec.origin) or (spec.origin, None)
        at = f", line {line}" if line is not None and file == spec.origin else ""
        raise refuse(
            f"{path} cannot be loaded{at}: {type(error).__name__}: {error}", file=file, line=line
        ) from error
    return module
