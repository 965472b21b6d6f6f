"""Loads a policy by the name given to `--policy` or HOCKET_POLICY: a ready-made one, or FILE.py[:CLASS]."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path

from hocket.errors import PolicyError, UsageError
from hocket.policies import READY_MADE
from hocket.policy.policy import Policy


def load(name: str) -> Policy:
    """An instance. Raises UsageError when there is no such policy, PolicyError when its file fails.

    >>> type(load("two_level")).__name__
    'TwoLevelRing'
    """
    if name in READY_MADE:
        return READY_MADE[name]()
    path, _, wanted = name.partition(":")
    if not path.endswith(".py"):
        raise UsageError(f"there is no policy `{name}`\nhint: {', '.join(READY_MADE)}, or FILE.py[:CLASS]")
    defined = _policies(Path(path))
    if not defined:
        raise UsageError(f"{path} defines no policy\nhint: a class that inherits from hocket.Policy")
    found = [key for key in defined if wanted in ("", key)]
    if len(found) != 1:
        raise UsageError(f"{path}: which policy? There are: {', '.join(defined)}\nhint: write {path}:CLASS")
    try:
        return defined[found[0]]()
    except Exception as error:
        raise PolicyError(f"{path}: {found[0]}() raised {type(error).__name__}: {error}") from error


def _policies(path: Path) -> dict[str, type[Policy]]:
    """Policies defined in a file, by class name."""
    if not path.is_file():
        raise UsageError(f"there is no policy file {path}")
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
