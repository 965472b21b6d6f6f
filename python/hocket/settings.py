"""Every environment variable and limit of Hocket, once. Arguments beat the environment, read only here."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from hocket.errors import UsageError


def _variable(name: str, default: Any, parse: Callable[[str], Any], doc: str) -> Any:
    return field(default=default, metadata={"name": name, "parse": parse, "doc": doc})


def flag(text: str) -> bool:
    """`0` or `1`."""
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


def count(text: str) -> int:
    """A whole number from 1."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def seconds_of(search: str) -> float:
    """Of a search's time, a number with its unit. UsageError: it is none.

    >>> seconds_of("20m"), seconds_of("90s"), seconds_of("1.5h")
    (1200.0, 90.0, 5400.0)
    """
    try:
        time_s = float(search[:-1]) * {"s": 1, "m": 60, "h": 3600}.get(search[-1:], math.nan)
    except ValueError:
        time_s = math.nan
    if not 0 < time_s < math.inf:
        raise UsageError(f"a search of `{search}`\nhint: a time, such as 20m, 90s or 1h")
    return time_s


SILENCE_MAX_S, SILENCE_MAX_OF_MEMBERS_S = 30.0, 5.0

Guard = Literal["full", "paper", "off"]
"""What a schedule of merged or late gradients must pass before it is used: all checks, DeFT's ratio alone, or nothing."""


def guard_name(text: str) -> Guard:
    """One of these."""
    found: dict[str, Guard] = {each: each for each in get_args(Guard)}
    if text not in found:
        raise ValueError
    return found[text]


OnRefusal = Literal["means", "end"]
"""What an elastic job does whose policy refuses the ranks that are left: it goes on with plain means, or ends."""


def on_refusal(text: str) -> OnRefusal:
    """One of these."""
    found: dict[str, OnRefusal] = {each: each for each in get_args(OnRefusal)}
    if text not in found:
        raise ValueError
    return found[text]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a rank reads from its environment. `hocket doctor` prints this table."""

    rank: int | None = _variable(
        "HOCKET_RANK", None, int, "Rank of this process; else the launcher's own variable."
    )
    world: int | None = _variable(
        "HOCKET_WORLD", None, int, "Number of ranks; else the launcher's own variable."
    )
    local_rank: int | None = _variable(
        "HOCKET_LOCAL_RANK", None, int, "Position among the ranks of this host."
    )
    local_world: int | None = _variable(
        "HOCKET_LOCAL_WORLD", None, int, "Number of ranks that this host starts."
    )
    host: str | None = _variable(
        "HOCKET_HOST", None, str, "Name of this host, in messages and in the cluster file; else its own name."
    )
    store: str | None = _variable("HOCKET_STORE", None, str, "ADDRESS:PORT of the rendezvous store.")
    store_served: bool = _variable(
        "HOCKET_STORE_SERVED", False, flag, "1: the launcher serves the store; 0: rank 0."
    )
    coordinator: str | None = _variable(
        "HOCKET_COORDINATOR",
        None,
        str,
        "ADDRESS:PORT of an elastic job's coordinator; set by `hocket run --elastic`.",
    )
    coordinator_timeout_s: float | None = _variable(
        "HOCKET_COORDINATOR_TIMEOUT_S",
        None,
        float,
        "Seconds that ranks of an elastic job with a journal train on when its launcher has died; else 300.",
    )
    rejoin_timeout_s: float | None = _variable(
        "HOCKET_REJOIN_TIMEOUT_S",
        None,
        float,
        "Seconds that an elastic job with too few ranks waits for others to join; else 0, with `--respawn` 300.",
    )
    joins: bool = _variable(
        "HOCKET_JOINS",
        False,
        flag,
        "1: this process becomes a rank of an elastic job that trains already; set by `hocket join`.",
    )
    member: int | None = _variable(
        "HOCKET_MEMBER",
        None,
        int,
        "Number that this process gets as it joins; set by `hocket run --respawn`, else the next one.",
    )
    secret: str | None = _variable(
        "HOCKET_SECRET",
        None,
        str,
        "The job's secret, hexadecimal; made by `hocket run`, else yours to give (docs/secrets.md).",
    )
    interface: str | None = _variable(
        "HOCKET_INTERFACE",
        None,
        str,
        "Interfaces, addresses or subnets of the wire, by commas; all: those whose networks all hosts share.",
    )
    streams: int | None = _variable(
        "HOCKET_STREAMS",
        None,
        count,
        "TCP connections per pair of ranks and interfaces, as rank 0 has it; else as measured, or 1.",
    )
    plan: str | None = _variable("HOCKET_PLAN", None, str, "Plan file to run; else a default plan is made.")
    policy: str | None = _variable(
        "HOCKET_POLICY", None, str, "Policy to run: a ready-made one's name, or FILE.py[:CLASS]."
    )
    on_refusal: Literal["means", "end"] = _variable(
        "HOCKET_ON_REFUSAL",
        "means",
        on_refusal,
        "What an elastic job does whose policy refuses the ranks that are left: `means` (gradients are plain means) or `end`.",
    )
    promise: str | None = _variable(
        "HOCKET_PROMISE",
        None,
        str,
        "How far results may be from DDP's: `exact`, `rounded` (f16 on slow links), `merged` (larger batches) or `delayed` (late "
        "gradients); else exact, or as the plan file says.",
    )
    sentinel: bool = _variable(
        "HOCKET_SENTINEL",
        True,
        flag,
        "0: merged and late gradients begin at once, and nobody watches whether training goes on as without.",
    )
    guard: Literal["full", "paper", "off"] = _variable(
        "HOCKET_GUARD",
        "full",
        guard_name,
        "What merged and late gradients must pass before they are used: `full` (all checks), `paper` (DeFT's ratio) or `off`.",
    )
    servers: int = _variable(
        "HOCKET_SERVERS",
        0,
        int,
        "How many of the ranks, the last ones, are parameter servers; 0: all-reduce.",
    )
    helpers: int = _variable(
        "HOCKET_HELPERS",
        0,
        int,
        "How many of the ranks, the last ones, train nothing and only own what the plan gives them; 0: all train.",
    )
    staleness: str = _variable(
        "HOCKET_STALENESS",
        "0",
        str,
        "Iterations that workers of parameter servers may be apart: 0 for synchronous, K, or `any`.",
    )
    server_bucket_bytes: int = _variable(
        "HOCKET_SERVER_BUCKET_BYTES",
        1 << 20,
        int,
        "Size up to which parameters travel together to and from servers; 0: each by itself.",
    )
    timer_interval_s: float | None = _variable(
        "HOCKET_TIMER_INTERVAL_S", None, float, "Seconds between calls of a policy's `on_timer`."
    )
    reorder: bool = _variable(
        "HOCKET_REORDER",
        False,
        flag,
        "1: a job changes the rank orders of a plan that it was given when its network makes others faster.",
    )
    cluster: str | None = _variable(
        "HOCKET_CLUSTER",
        None,
        str,
        "Cluster file: the default plan is made for it, and connections are as many as it says paths need.",
    )
    autopilot: bool = _variable(
        "HOCKET_AUTOPILOT",
        True,
        flag,
        "0: a job does not look at its network as it starts, and keeps its plan while it trains.",
    )
    search: str | None = _variable(
        "HOCKET_SEARCH",
        None,
        str,
        "How long a job tries plans while it trains, such as `20m`, `90s` or `1h`, to keep the fastest; else it does not.",
    )
    tuning: str | None = _variable(
        "HOCKET_TUNING", None, str, "Tuning file that algorithms are chosen by; rank 0's counts."
    )
    cache: str | None = _variable(
        "HOCKET_CACHE",
        None,
        str,
        "Directory of compiled programs and of what jobs found out; else `hocket` in the user's caches.",
    )
    cache_bytes: int = _variable(
        "HOCKET_CACHE_BYTES", 1 << 28, int, "Size up to which these are kept there; 0: nothing is."
    )
    profile_out: str | None = _variable(
        "HOCKET_PROFILE_OUT", None, str, "Profile the script, write here, and stop."
    )
    steps_max: int | None = _variable(
        "HOCKET_STEPS_MAX",
        None,
        count,
        "End the script after so many steps of its optimizer; else it ends by itself.",
    )
    trace: str | None = _variable("HOCKET_TRACE", None, str, "Directory to write a trace to.")
    emulated_links: str | None = _variable(
        "HOCKET_EMULATED_LINKS",
        None,
        str,
        "File of an emulated network whose rates the wire keeps by itself.",
    )
    checksum: bool = _variable(
        "HOCKET_CHECKSUM", False, flag, "1: frames between hosts carry a CRC32C; damage fails the job."
    )
    tls: bool = _variable(
        "HOCKET_TLS",
        False,
        flag,
        "1: connections between hosts are TLS 1.3, bound to a secret that only the job's ranks know.",
    )
    fabric: str = _variable(
        "HOCKET_FABRIC",
        "off",
        str,
        "What carries gradients between hosts through libfabric: efa, tcp, udp or shm; auto: EFA where there is one; off: "
        "TCP connections of our own.",
    )
    threads: int = _variable("HOCKET_THREADS", 1, int, "Native threads of each rank.")
    timeout_s: float = _variable(
        "HOCKET_TIMEOUT_S", 300.0, float, "Longest wait for other ranks in a step, seconds."
    )
    heartbeat_timeout_s: float | None = _variable(
        "HOCKET_HEARTBEAT_TIMEOUT_S",
        None,
        float,
        "Longest silence of a rank that is waited for, seconds; a live rank answers whatever its script does. Else 30, in elastic "
        "jobs 5.",
    )
    start_timeout_s: float = _variable(
        "HOCKET_START_TIMEOUT_S", 60.0, float, "Longest wait for ranks to meet, seconds."
    )

    def silence_max_s(self, *, elastic: bool) -> float:
        """Longest silence of a rank that is waited for. Those who can go on without it wait less for one that may come back."""
        if self.heartbeat_timeout_s is not None:
            return self.heartbeat_timeout_s
        return SILENCE_MAX_OF_MEMBERS_S if elastic else SILENCE_MAX_S

    def with_another_launcher_s(self, timeout_s: float) -> float:
        """That time-out in an elastic job with a journal, where another launcher may have to come first."""
        return timeout_s + (self.coordinator_timeout_s or 0.0)

    @property
    def besides(self) -> int:
        """How many ranks, the last ones, do not train."""
        return self.servers + self.helpers

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read all variables; UsageError names the one that does not parse."""
        source = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for setting in fields(cls):
            text = source.get(setting.metadata["name"])
            if text is None or text == "":
                continue
            try:
                values[setting.name] = setting.metadata["parse"](text)
            except ValueError:
                kind = setting.metadata["parse"].__name__
                raise UsageError(f"{setting.metadata['name']}: {text!r} is not of type {kind}") from None
        return cls(**values)

    def to_environment(self) -> dict[str, str]:
        """The variables that give these settings; those at their default are left out."""
        values = {
            setting.metadata["name"]: (getattr(self, setting.name), setting.default)
            for setting in fields(self)
        }
        return {
            name: str(int(value) if isinstance(value, bool) else value)
            for name, (value, default) in values.items()
            if value != default
        }


OTHERS = ("HOCKET_DEBUG", "HOCKET_BLESS", "HOCKET_FUZZ_CASES")
"""Variables of the command line and of the tests, not of ranks."""


def unknown(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like Hocket's and that nobody reads, in order.

    >>> unknown({"HOCKET_RANK": "1", "HOCKET_RNAK": "1", "RANK": "1"})
    ['HOCKET_RNAK']
    """
    known = {*(setting.metadata["name"] for setting in fields(Settings)), *OTHERS}
    return sorted(name for name in environment if name.startswith("HOCKET_") and name not in known)
