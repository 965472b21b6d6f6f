"""Artefacts as files: a cluster in TOML, since people write it too; profiles, plans and tunings in JSON.

Plans are read in both of their versions, and checked. Reading checks the version and the schema; every error names the
file. Writing replaces the file atomically, so that no reader sees half of one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli_w

from hocket import typed
from hocket.artefacts import cluster_check, plan_check, profile, writing
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.decoding import MALFORMED, bytes_of, toml_of, why
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.tuning import Tuning
from hocket.artefacts.upgrade import current
from hocket.errors import ArtefactError

VERSIONS: dict[type, int] = {Cluster: 1, Profile: 1, Plan: 2, Tuning: 1}
"""Newest supported version of each artefact."""

Artefact = TypeVar("Artefact", Cluster, Profile, Plan, Tuning)


def read(path: Path, kind: type[Artefact]) -> Artefact:
    """Return the artefact in a file.

    Raises ArtefactError when the file is missing, truncated, of a newer version or not a `kind` at all.
    """
    what = kind.__name__.lower()
    try:
        data = bytes_of(path)
        tree = toml_of(data) if kind is Cluster else typed.of_json(data)
    except OSError as error:
        raise ArtefactError(f"{what} file {path} cannot be read: {error.strerror}") from None
    except MALFORMED as error:
        raise ArtefactError(f"{what} file {path} is damaged or truncated: {why(error)}") from None
    _check_version(what, path, tree, VERSIONS[kind])
    try:
        artefact = typed.of_builtins(current(tree) if kind is Plan else tree, kind)
    except MALFORMED as error:
        raise ArtefactError(f"{what} file {path} is not a {what}: {why(error)}") from None
    if isinstance(artefact, Plan):
        plan_check.check(artefact, name=f"plan file {path}")
    elif isinstance(artefact, Cluster):
        cluster_check.check(artefact, name=f"cluster file {path}", unmeasured=True)
    elif isinstance(artefact, Profile):
        profile.check(artefact, name=f"profile file {path}")
    return artefact


def write(path: Path, artefact: Cluster | Profile | Plan | Tuning) -> None:
    """Write the artefact's file, replacing an old one; ArtefactError with the reason of a failure."""
    data = encode(artefact)
    try:
        writing.write(path, data)
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None


def encode(artefact: Cluster | Profile | Plan | Tuning) -> bytes:
    """Return the bytes of the artefact's file: equal for equal artefacts."""
    if isinstance(artefact, Cluster):
        tree = _without_none(msgspec.to_builtins(artefact))
        if not artefact.relays:
            # Plans have digests of clusters from before there were any.
            del tree["relays"]
        return tomli_w.dumps(tree).encode()
    if isinstance(artefact, Profile) and artefact.bus is None:
        # Plans have digests of profiles from before there was one.
        return json_of({key: value for key, value in msgspec.to_builtins(artefact).items() if key != "bus"})
    return json_of(artefact)


def json_of(value: Any) -> bytes:
    """Return plain data as JSON for people and programs to read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _check_version(what: str, path: Path, tree: Any, newest: int) -> None:
    version = tree.get("version", newest) if isinstance(tree, dict) else newest
    if isinstance(version, int) and version > newest:
        raise ArtefactError(
            f"{what} file {path} has version {version}: this Hocket reads up to {newest}\n"
            "hint: use the Hocket that wrote it, or a newer one"
        )


def _without_none(tree: Any) -> Any:
    """Leave out None, since TOML has no null; it is read back as the default."""
    if isinstance(tree, dict):
        return {key: _without_none(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list | tuple):
        return [_without_none(value) for value in tree]
    return tree
