"""Loader of policies by the name given to `--policy` or HOCKET_POLICY: a ready-made one, or FILE.py[:CLASS]."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from pathlib import Path

from hocket.errors import PolicyError, UsageError
from hocket.policies import READY_MADE
from hocket.policy import declared
from hocket.policy.policy import Policy


def load(name: str) -> Policy:
    """Make an instance. Raises UsageError if there is no such policy, PolicyError if its file fails.

    >>> type(load("two_level")).__name__
    'TwoLevelRing'
    """
    if name in READY_MADE:
        return READY_MADE[name]()
    path, _, wanted = name.partition(":")
    _source(name, path)
    defined = _policies(Path(path))
    if not defined:
        raise UsageError(f"{path} defines no policy\nhint: a class that inherits from hocket.Policy")
    found = [key for key in defined if wanted in ("", key)]
    if len(found) != 1:
        raise UsageError(f"{path}: which policy? There are: {', '.join(defined)}\nhint: write {path}:CLASS")
    try:
        policy = defined[found[0]]()
    except Exception as error:
        raise PolicyError(f"{path}: {found[0]}() raised {type(error).__name__}: {error}") from error
    declared.check(policy)
    return policy


def look(name: str) -> None:
    """Check that a policy exists, without running its file, which may need a rank's resources. UsageError: no such policy.
    PolicyError: not Python.

    UsageError: there is none. PolicyError: its file is no Python.
    """
    if name in READY_MADE:
        return
    path, _, wanted = name.partition(":")
    source = _source(name, path)
    try:
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise PolicyError(
            f"{path} cannot be loaded: it is no Python: {error}", file=path, line=line
        ) from None
    classes = {each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef)}
    if not classes:
        raise UsageError(f"{path} defines no policy\nhint: a class that inherits from hocket.Policy")
    if wanted and wanted not in classes:
        raise UsageError(f"{path} has no class {wanted}\nhint: it has {', '.join(sorted(classes))}")


def _source(name: str, path: str) -> bytes:
    if not path.endswith(".py"):
        raise UsageError(f"there is no policy `{name}`\nhint: {', '.join(READY_MADE)}, or FILE.py[:CLASS]")
    if not Path(path).is_file():
        raise UsageError(f"there is no policy file {path}")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"policy file {path} cannot be read: {error.strerror}") from None


def _policies(path: Path) -> dict[str, type[Policy]]:
    """Policies defined in a file, by class name."""
    name = f"hocket_policy_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PolicyError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return {
        key: each
        for key, each in vars(module).items()
        if inspect.isclass(each) and issubclass(each, Policy) and each.__module__ == name
    }
