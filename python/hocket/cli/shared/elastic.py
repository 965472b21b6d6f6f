"""Words of `--elastic`: how many ranks an elastic job may have, and what its launcher does about lost ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from hocket.cli.shared.values import One, members, word
from hocket.errors import UsageError
from hocket.setting_values import one_of, patience, seconds
from hocket.settings import OnRefusal, Settings
from hocket.training.features import check_elastic_settings

RESPAWN_MAX = 10_000
"""Limit of replacements: members have numbers of 16 bits."""


@dataclass(frozen=True, kw_only=True)
class Elastic:
    """Words of `--elastic`; None: not given."""

    members: tuple[int, int]
    respawn: int = 0
    rejoin: float | None = None
    on_refusal: OnRefusal | None = None
    journal: Path | None = None
    alone: float | None = None

    def settings(self) -> dict[str, Any]:
        """Return the settings of ranks that these words give; None: not given."""
        return {
            "rejoin_timeout_s": self.rejoin,
            "on_refusal": self.on_refusal,
            "coordinator_timeout_s": self.alone,
        }

    def refuse_alone(self, hint: str, *, journal: Path | None) -> None:
        """Raise UsageError, with this hint, if ranks are to train on alone without a `journal`."""
        if self.alone is not None and journal is None:
            raise UsageError(f"--elastic: without a journal, ranks end with their launcher\nhint: {hint}")

    def world(self, world: int | None, settings: Settings) -> int:
        """Return the number of ranks that begin; `world`: what `-n` asks for."""
        least, most = self.members
        if world is not None and not least <= world <= most:
            raise UsageError(
                f"-n {world} and --elastic {least}:{most}: the job starts with a number of ranks that it may have\n"
                f"hint: -n from {least} to {most}, or leave it out to start {most}"
            )
        check_elastic_settings(settings)
        return most if world is None else world


def elastic_of(text: str) -> Elastic:
    """Return the words of `2:4,respawn=10`. ValueError: it does not begin with MIN:MAX. UsageError: a word is wrong."""
    counts, *given = text.split(",")
    found: dict[str, Any] = {"members": members(counts)}
    for each in given:
        name, _, value = each.partition("=")
        if name not in WORDS:
            raise UsageError(
                f"--elastic: `{each}` is not one of {', '.join(f'{known}=…' for known in WORDS)}"
            )
        parse, what = WORDS[name]
        try:
            found[name.replace("-", "_")] = parse(value)
        except ValueError:
            raise UsageError(f"--elastic: `{each}`: {name} is {what}") from None
    return Elastic(**found)


def _respawn(text: str) -> int:
    if not 0 <= int(text) <= RESPAWN_MAX:
        raise ValueError
    return int(text)


WORDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "respawn": (_respawn, f"a whole number from 0 to {RESPAWN_MAX}"),
    "rejoin": (patience, "a number of seconds from 0 to 1e9"),
    "on-refusal": (one_of(OnRefusal), f"one of {', '.join(get_args(OnRefusal))}"),
    "journal": (lambda text: Path(word(text)), "a file"),
    "alone": (seconds, "a number of seconds from 0.001 to 1e9"),
}
"""Parsers of the words after MIN:MAX, and what their values are."""

ELASTIC = One("elastic", "MIN:MAX, two numbers of ranks such as 2:4", elastic_of)
