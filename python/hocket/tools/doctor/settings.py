"""Settings in force, each from the default or from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from msgspec import Struct

from hocket import unknown_variables
from hocket.errors import UsageError
from hocket.settings import Settings
from hocket.tools.doctor.finding import Finding, Section

_finding = Section("settings")


class InForce(Struct, frozen=True, kw_only=True):
    """Variable in force. `source` is `default` or `environment`."""

    name: str
    now: Any
    default: Any
    source: str
    doc: str


def in_force(environment: Mapping[str, str] | None = None) -> tuple[list[InForce], list[Finding]]:
    """Return settings with their source; a variable that cannot be parsed is a finding, and its default is listed."""
    source = os.environ if environment is None else environment
    rows, broken = [], []
    for setting in fields(Settings):
        name = setting.metadata["name"]
        given = source.get(name, "")
        value = setting.default
        try:
            value = getattr(Settings.from_environment({name: given}), setting.name)
        except UsageError as error:
            example = "" if setting.default is None else f", or give it a value such as {setting.default}"
            hint = f"unset {name}{example}"
            broken.append(_finding(name, False, str(error), hint, "broken"))
        # A secret must not appear on terminals and in logs.
        shown = "set" if setting.name in ("secret", "metrics_token") and value else value
        rows.append(
            InForce(
                name=name,
                now=shown,
                default=setting.default,
                source="environment" if given else "default",
                doc=setting.metadata["doc"],
            )
        )
    broken += [_unknown(name) for name in unknown_variables.unknown(source, Settings.names())]
    return rows, broken


def _unknown(name: str) -> Finding:
    meant = unknown_variables.nearest(name, Settings.names())
    return _finding(
        name,
        False,
        "Hocket reads no such variable, and jobs that have it are refused",
        f"unset {name}" if meant is None else f"rename it to {meant}, or unset it",
        "broken",
    )
