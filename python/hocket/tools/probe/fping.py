"""Latencies by `fping` alone, for hosts that cannot run an agent: a shell, reached by ssh, and fping suffice.

The tournament of pairs is the agents'; the first host of a pair pings the second. Rates are not measured: the caller must know
them.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.errors import PeerError
from hocket.measure.rounds import tournament
from hocket.measure.topology import find_racks
from hocket.tools.probe import certainty
from hocket.tools.probe.datagrams import Trips
from hocket.tools.probe.options import PAIR_S
from hocket.tools.probe.quantile import Quantile
from hocket.tools.probe.saved import Saved
from hocket.tools.probe.steps import Note, Progress, Step

PINGS = 200
PERIOD_MS = 10
"""The shortest interval that fping allows without root."""

WAIT_MS = 500
COMMAND_TIMEOUT_S = 60.0
MISSING = 127
"""Exit status of a shell for an unknown command."""

STEP_S = PINGS * PERIOD_MS / 1e3 + 1.0

ROUND_TRIP_MS_MAX = 1e6


def probe_by_fping(
    names: Sequence[str],
    *,
    ssh: str,
    link_bit_per_s: float,
    pair_s: float = PAIR_S,
    saved: Saved | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
) -> Cluster:
    """Measure latencies between hosts; `names` are known to ssh and to the hosts, `ssh` is the command to reach one.

    `link_bit_per_s` is written as the rate of every host's own link. Pings go on until a latency is known or, after the
    first PINGS of them, `pair_s` has passed. Raises PeerError with the pair of hosts and the reason: no fping there, no
    route to the host, no answer.
    """
    hosts = [name.rpartition("@")[2] for name in names]
    rounds = tournament(len(names))
    found: dict[tuple[int, int], Trips] = {}
    with ThreadPoolExecutor(max(1, len(names) // 2)) as pool:
        for number, pairs in enumerate(rounds):
            if progress is not None:
                progress(number, len(rounds), f"pairs, round {number + 1} of {len(rounds)}")
            if saved is not None and number < len(saved.steps):
                step = saved.steps[number]
            else:
                asked = pool.map(lambda pair: _ask(ssh, names[pair[0]], hosts[pair[1]], pair_s), pairs)
                step = Step(
                    number, "fping", [(*pair, list(each)) for pair, each in zip(pairs, asked, strict=True)]
                )
                if saved is not None:
                    saved.add(step)
            for a, b, (round_trip_s, its_sent, its_lost, precision) in step.found:
                found[a, b] = Trips(round_trip_s, int(its_sent), int(its_lost), 0, precision)
    sent, lost = sum(each.sent for each in found.values()), sum(each.lost for each in found.values())
    if lost and note is not None:
        note(f"of {sent:,} pings {lost:,} were lost")
    unsure = certainty.imprecise(found, hosts, pair_s)
    if unsure and note is not None:
        note(unsure)
    every = range(len(names))
    both = [[found.get((a, b)) or found.get((b, a)) for b in every] for a in every]
    latency_s = [[each.round_trip_s / 2 if each else 0.0 for each in row] for row in both]
    racks = find_racks([[link_bit_per_s for _ in every] for _ in every], latency_s)
    place = {host: index for index, rack in enumerate(racks) for host in rack}
    return Cluster(
        hosts=tuple(
            Host(name=name, rack=f"rack{place[at]}", bandwidth_bit_per_s=link_bit_per_s)
            for at, name in enumerate(hosts)
        ),
        racks=tuple(Rack(name=f"rack{index}") for index in range(len(racks))),
        latency_s=tuple(tuple(round(each, 7) for each in row) for row in latency_s),
        latency_precision=tuple(
            tuple(round(each.precision, 4) if each else 0.0 for each in row) for row in both
        ),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def round_trips(printed: str, host: str) -> list[float | None]:
    """Seconds of each ping in `fping -C`'s output for a host, None for a lost one; empty if the output lacks the host.

    >>> round_trips("node7 : 0.25 - 0.50", "node7")
    [0.00025, None, 0.0005]
    """
    for line in printed.splitlines():
        name, colon, numbers = line.partition(" : ")
        if colon and name.strip() == host:
            fields = numbers.split()
            if fields and all(each == "-" or _is_milliseconds(each) for each in fields):
                return [None if each == "-" else float(each) / 1e3 for each in fields]
    return []


def _is_milliseconds(text: str) -> bool:
    try:
        return 0 <= float(text) < ROUND_TRIP_MS_MAX
    except ValueError:
        return False


def _ask(ssh: str, source: str, destination: str, pair_s: float) -> tuple[float, int, int, float]:
    """Low quantile of round trips, number of pings, number of lost ones, and the quantile's precision."""
    quantile = Quantile()
    sent = 0
    end_s = time.perf_counter() + pair_s
    while not quantile.count or (not quantile.known and time.perf_counter() < end_s):
        trips = _once(ssh, source, destination)
        sent += len(trips)
        for each in trips:
            if each is not None:
                quantile.add(each)
    return quantile.value, sent, sent - quantile.count, quantile.precision


def _once(ssh: str, source: str, destination: str) -> list[float | None]:
    """Round trips of one fping, None for lost ones; at least one came back."""
    command = f"fping -q -C {PINGS} -p {PERIOD_MS} -t {WAIT_MS} -- {shlex.quote(destination)}"
    try:
        ran = subprocess.run(
            [*shlex.split(ssh), source, command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"probe: fping on {source} did not end in {COMMAND_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise PeerError(f"probe: `{ssh}` cannot be started: {error.strerror}") from None
    output = (ran.stdout + b"\n" + ran.stderr).decode(errors="replace")
    if ran.returncode == MISSING:
        raise PeerError(f"probe: there is no fping on {source}\nhint: install it there (apt install fping)")
    trips = round_trips(output, destination)
    if all(each is None for each in trips):
        why = (
            "none of its pings came back" if trips else output.strip()[-400:] or f"exit code {ran.returncode}"
        )
        raise PeerError(f"probe: from {source} to {destination} by fping: {why}")
    return trips
