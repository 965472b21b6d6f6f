"""Checks before the start of a job: settings and files that its ranks would refuse as soon as they train."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import promise_of
from hocket.artefacts.tuning import Tuning
from hocket.artefacts.writing import makeable
from hocket.errors import UsageError
from hocket.policies import load
from hocket.setting_values import seconds_of
from hocket.settings import Settings


def check(settings: Settings, given: Mapping[str, str | os.PathLike[str] | None], *, here: bool) -> None:
    """Refuse what ranks would refuse: UsageError, ArtefactError.

    Args:
        settings: the job's.
        given: the files among them that the caller was given by name (`plan`, `cluster`, `tuning`, `policy`); they are this
            machine's.
        here: ranks are on this machine: files that variables name are this machine's, too.
    """

    def named(name: str, variable: str | None) -> str | None:
        found = given.get(name) or (variable if here else None)
        return None if found is None else str(found)

    if settings.search is not None:
        seconds_of(settings.search)
    if settings.promise is not None:
        promise_of(settings.promise)
    if (plan := named("plan", settings.plan)) is not None:
        files.read(Path(plan), Plan)
    if (cluster := named("cluster", settings.cluster)) is not None:
        files.read(Path(cluster), Cluster)
    if (tuning := named("tuning", settings.tuning)) is not None:
        files.read(Path(tuning), Tuning)
    if (policy := named("policy", settings.policy)) is not None:
        load.look(policy)
    settings.refuse_bounds_of_nothing()
    if settings.trace is not None and here:
        makeable(Path(settings.trace))


def absolute(path: str | os.PathLike[str] | None, *, must_exist: bool) -> str | None:
    """Return the whole path, since ranks may start elsewhere. UsageError: it does not exist."""
    if path is None:
        return None
    if must_exist and not Path(path).exists():
        raise UsageError(f"{path} does not exist")
    return str(Path(path).absolute())


def policy_path(name: str | None) -> str | None:
    """Return the policy with its file's whole path. UsageError: the file does not exist."""
    path, colon, wanted = (name or "").partition(":")
    if not path.endswith(".py"):
        return name
    return f"{absolute(path, must_exist=True)}{colon}{wanted}"
