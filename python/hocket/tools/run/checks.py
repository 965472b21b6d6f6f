"""Checks before the start of a job: settings and files that its ranks would refuse as soon as they train."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import promise_of
from hocket.artefacts.tuning import Tuning
from hocket.artefacts.writing import makeable
from hocket.errors import UsageError
from hocket.planning import asked
from hocket.policies import load
from hocket.setting_values import seconds_of
from hocket.settings import Settings


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Return the settings of a job: those that the caller was `given`, by name, and for None those of the environment. Paths become
    whole, since ranks may start elsewhere. UsageError: a file that is to be read does not exist.
    """
    whole = {
        "plan": _absolute(given.get("plan"), must_exist=True),
        "policy": _policy_path(given.get("policy")),
        "builder": _builder_path(given.get("builder")),
        "cluster": _absolute(given.get("cluster"), must_exist=True),
        "tuning": _absolute(given.get("tuning"), must_exist=True),
        "trace": _absolute(given.get("trace"), must_exist=False),
        "dumps": _absolute(given.get("dumps"), must_exist=False),
    }
    named = {name: value for name, value in {**given, **whole}.items() if value is not None}
    return dataclasses.replace(Settings.from_environment(), **named)


def check(settings: Settings, given: Mapping[str, Any], *, here: bool) -> None:
    """Refuse what ranks would refuse: UsageError, ArtefactError.

    Args:
        settings: the job's.
        given: as for `settings_of`: the files among them are this machine's.
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
    settings.refuse_builder_without_search()
    if (builder := named("builder", settings.builder)) is not None:
        asked.look(builder)
    settings.refuse_bounds_of_nothing()
    if settings.trace is not None and here:
        makeable(Path(settings.trace))


def _absolute(path: str | os.PathLike[str] | None, *, must_exist: bool) -> str | None:
    if path is None:
        return None
    if must_exist and not Path(path).exists():
        raise UsageError(f"{path} does not exist")
    return str(Path(path).absolute())


def _policy_path(name: str | None) -> str | None:
    """Return the policy with its file's whole path. UsageError: the file does not exist."""
    path, colon, wanted = (name or "").partition(":")
    if not path.endswith(".py"):
        return name
    return f"{_absolute(path, must_exist=True)}{colon}{wanted}"


def _builder_path(text: str | None) -> str | None:
    """Return the builder with its file's whole path, and its settings. UsageError: the file does not exist."""
    file, rest = ("", "") if text is None else asked.split(text)
    return f"{_policy_path(file)}{rest}" if file else text
