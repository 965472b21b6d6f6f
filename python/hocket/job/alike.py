"""Settings that must be equal on all ranks: compared when ranks meet, as a rank with another value would wait in vain."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from hocket.errors import RendezvousError
from hocket.settings import Settings

log = logging.getLogger("hocket.job")

OWN = frozenset(
    # Settings of a process or a host.
    {
        "rank",
        "world",
        "local_rank",
        "local_world",
        "host",
        "joins",
        "member",
        "notice_code",
        "secret",
        "interface",
        "threads",
    }
    | {"store", "store_served", "cache", "cache_bytes", "trace", "emulated_links"}
    # Reports of a rank on how it gets on, where rank 0 passes them on, and when one process warns of others by them.
    | {"live_interval_s", "metrics", "metrics_token", "late_s"}
    # A rank that ends earlier is named when that happens.
    | {"steps_max"}
    # Settings of which only rank 0's value counts.
    | {"streams", "plan", "cluster", "tuning"}
    # Time limits of each rank.
    | {"timeout_s", "heartbeat_timeout_s", "start_timeout_s", "coordinator_timeout_s", "rejoin_timeout_s"}
)
"""Settings that may differ."""

GIVEN = frozenset({"coordinator", "profile_out"})
"""Settings that must be given on all ranks or on none: addresses and files have other names elsewhere."""


def shared(settings: Settings) -> dict[str, str]:
    """Return the settings that must be equal on all ranks, by the variable's name, without those at their defaults.

    >>> shared(Settings(rank=3, servers=1, policy="rules/mine.py:Mine"))
    {'HOCKET_POLICY': 'mine.py:Mine', 'HOCKET_SERVERS': '1'}
    """
    found: dict[str, str] = {}
    for each in fields(Settings):
        value = getattr(settings, each.name)
        if each.name in OWN or value == each.default:
            continue
        if each.name in GIVEN:
            value = "given"
        elif each.name == "policy":
            value = Path(value).name
        found[each.metadata["name"]] = str(int(value) if isinstance(value, bool) else value)
    return found


def check(given: Sequence[Mapping[str, str]], hosts: Sequence[str]) -> None:
    """Compare the settings of all ranks. RendezvousError names each setting that differs, with values and ranks."""
    defaults = {each.metadata["name"]: each.default for each in fields(Settings)}
    compare(given, hosts, defaults=defaults, hint="set it alike on all ranks")


def compare(
    given: Sequence[Mapping[str, str]], hosts: Sequence[str], *, defaults: Mapping[str, object], hint: str
) -> None:
    """Compare values of all ranks, by name or default. RendezvousError names each that differs, with values and ranks."""
    if all(each == given[0] for each in given):
        return
    lines: list[str] = []
    names = sorted({name for each in given for name in each})
    differing = [name for name in names if len({each.get(name) for each in given}) > 1]
    for name in differing:
        ranks: dict[str | None, list[int]] = {}
        for rank, each in enumerate(given):
            ranks.setdefault(each.get(name), []).append(rank)
        each_value = (
            f"{_value(value, defaults.get(name))} on {named(own, hosts)}" for value, own in ranks.items()
        )
        lines.append(f"{name} is {', and '.join(each_value)}")
    odd = next(rank for rank, each in enumerate(given) if each != given[0])
    raise RendezvousError("; ".join(lines) + f"\nhint: {hint}", rank=odd, host=hosts[odd])


def arguments(given: Sequence[str], rank: int) -> str:
    """Return a digest of a script's arguments that does not depend on the rank's own number.

    >>> arguments(["--rank=1", "--lr", "2"], 1) == arguments(["--rank=3", "--lr", "2"], 3) != arguments(["--lr", "2"], 1)
    True
    """
    own = str(rank)
    words = [
        "#" if each == own else each.removesuffix(f"={own}") + "=#" * each.endswith(f"={own}")
        for each in given
    ]
    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:16]


def check_programs(
    programs: Sequence[str], digests: Sequence[str], hosts: Sequence[str], *, trains: int, rank: int
) -> None:
    """Compare programs in a job without a secret, of whose ranks the first `trains` train: others may be of another job at the same
    address. RendezvousError: ranks run different scripts. If only arguments differ, rank 0 warns."""
    hint = "give each job an address of its own (HOCKET_STORE), or a secret of its own (docs/secrets.md)"
    for each in range(trains):
        if programs[each] != programs[0]:
            raise RendezvousError(
                f"rank {each} on {hosts[each]} runs `{programs[each]}`, and rank 0 on {hosts[0]} `{programs[0]}`: two jobs seem to "
                f"meet at one address, and have no secret that tells them apart\nhint: {hint}",
                rank=each,
                host=hosts[each],
            )
    odd = [each for each in range(trains) if digests[each] != digests[0]]
    if odd and rank == 0:
        log.warning(
            "%s: `%s` runs with other arguments than on rank 0, and the job has no secret: is it another job's?\nhint: %s",
            named(odd, hosts),
            programs[0],
            hint,
        )


def _value(value: str | None, default: object) -> str:
    if value is not None:
        return value if value == "given" else f"`{value}`"
    if default is None:
        return "not set"
    return f"`{int(default) if isinstance(default, bool) else default}` (the default)"


RANKS_NAMED_MAX = 8


def named(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Return text that names these ranks and their hosts.

    >>> named([1], "ab"), named([0, 2], "aba")
    ('rank 1 on b', 'ranks 0, 2 on a')
    """
    shown = ", ".join(map(str, ranks[:RANKS_NAMED_MAX]))
    more = f" and {len(ranks) - RANKS_NAMED_MAX} more" if len(ranks) > RANKS_NAMED_MAX else ""
    places = sorted({hosts[rank] for rank in ranks})
    where = ", ".join(places[:RANKS_NAMED_MAX]) + (" and others" if len(places) > RANKS_NAMED_MAX else "")
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {shown}{more} on {where}"
