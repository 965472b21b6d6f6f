"""Loader of policies by the name given to `--policy` or HOCKET_POLICY: a ready-made one, or FILE.py[:CLASS]."""

from __future__ import annotations

from hocket import user_classes
from hocket.errors import PolicyError
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
    kind = user_classes.chosen(name, Policy, what="policy", known=list(READY_MADE), refuse=PolicyError)
    try:
        policy = kind()
    except Exception as error:
        path = name.partition(":")[0]
        raise PolicyError(f"{path}: {kind.__name__}() raised {type(error).__name__}: {error}") from error
    declared.check(policy)
    return policy


def look(name: str) -> None:
    """Check that a policy exists, without running its file, which may need a rank's resources. UsageError: no such policy.
    PolicyError: its file is no Python."""
    if name not in READY_MADE:
        user_classes.look(name, of=Policy, what="policy", known=list(READY_MADE), refuse=PolicyError)
