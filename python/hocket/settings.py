"""Every environment variable and limit of Hocket, once. Arguments beat the environment, read only here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from hocket import unknown_variables
from hocket.errors import UsageError
from hocket.setting_values import count, flag, log_levels, one_of, patience, ports, seconds, whole
from hocket.spellings import steps, trace_bytes


def _variable(name: str, doc: str, parse: Callable[[str], Any] = str, default: Any = None) -> Any:
    return field(default=default, metadata={"name": name, "parse": parse, "doc": doc})


SILENCE_MAX_S, SILENCE_MAX_OF_MEMBERS_S = 30.0, 5.0

Guard = Literal["full", "paper", "off"]
"""Checks that a schedule of merged or late gradients must pass before it is used: all, DeFT's ratio alone, or none."""


OnRefusal = Literal["means", "end"]
"""Action of an elastic job whose policy refuses the ranks that are left: it goes on with plain means, or ends."""


Found = Literal["stop", "warn", "off"]
"""Action of a job that finds ranks with different models, or with the same batches: it stops, or it warns once; with `off` it does
not look."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that a rank reads from its environment. `hocket doctor` prints this table."""

    rank: int | None = _variable(
        "HOCKET_RANK", "Rank of this process; else the launcher's own variable.", int
    )
    world: int | None = _variable("HOCKET_WORLD", "Number of ranks; else the launcher's own variable.", int)
    local_rank: int | None = _variable("HOCKET_LOCAL_RANK", "Position among the ranks of this host.", int)
    local_world: int | None = _variable("HOCKET_LOCAL_WORLD", "Number of ranks that this host starts.", int)
    host: str | None = _variable(
        "HOCKET_HOST", "Name of this host, in messages and in the cluster file; else its own name."
    )
    store: str | None = _variable("HOCKET_STORE", "ADDRESS:PORT of the rendezvous store.")
    store_served: bool = _variable(
        "HOCKET_STORE_SERVED", "1: the launcher serves the store; 0: rank 0.", flag, False
    )
    coordinator: str | None = _variable(
        "HOCKET_COORDINATOR",
        "ADDRESS:PORT of an elastic job's coordinator, from which this process gets its place; set by `hocket run --elastic`, too.",
    )
    coordinator_timeout_s: float | None = _variable(
        "HOCKET_COORDINATOR_TIMEOUT_S",
        "Seconds that ranks of an elastic job with a journal train on when its launcher has died; else 300.",
        seconds,
    )
    rejoin_timeout_s: float | None = _variable(
        "HOCKET_REJOIN_TIMEOUT_S",
        "Seconds that an elastic job with too few ranks waits for others to join; else 0, with replacements 300.",
        patience,
    )
    joins: bool = _variable(
        "HOCKET_JOINS",
        "1: this process becomes a rank of an elastic job that trains already; set by `hocket join`.",
        flag,
        False,
    )
    member: int | None = _variable(
        "HOCKET_MEMBER",
        "Number that this process gets as it joins; set by a launcher that replaces a lost rank, else the next one.",
        int,
    )
    notice_code: int | None = _variable(
        "HOCKET_NOTICE_CODE",
        "Exit code of a rank that a SIGTERM has made leave an elastic job in order; else 0, and 143 if it came to a coordinator.",
        whole,
    )
    secret: str | None = _variable(
        "HOCKET_SECRET",
        "The job's secret, hexadecimal; made by `hocket run`, else yours to give (docs/secrets.md).",
    )
    interface: str | None = _variable(
        "HOCKET_INTERFACE",
        "Interfaces, addresses or subnets of the wire, by commas; all: those whose networks all hosts share.",
    )
    streams: int | None = _variable(
        "HOCKET_STREAMS",
        "TCP connections per pair of ranks and interfaces, as rank 0 has it; else as measured, or as the path needs.",
        count,
    )
    ports: str | None = _variable(
        "HOCKET_PORTS",
        "FIRST-LAST: ports at which this host listens, for firewalls; else any. docs/it-hangs.md lists them.",
        ports,
    )
    plan: str | None = _variable("HOCKET_PLAN", "Plan file to run; else a default plan is made.")
    policy: str | None = _variable(
        "HOCKET_POLICY", "Policy to run: a ready-made one's name, or FILE.py[:CLASS]."
    )
    on_refusal: Literal["means", "end"] = _variable(
        "HOCKET_ON_REFUSAL",
        "What an elastic job does whose policy refuses the ranks that are left: `means` (gradients are plain means) or `end`.",
        one_of(OnRefusal),
        "means",
    )
    promise: str | None = _variable(
        "HOCKET_PROMISE",
        "How far results may be from DDP's: `exact`, `rounded` (f16 on slow links), `merged` (larger batches), `delayed` (late "
        "means, own gradients first), `local` (steps alone), `uncorrected` (late gradients) or `lossy` (few bits); else exact, or "
        "as the plan file says.",
    )
    on_same_batches: Literal["stop", "warn", "off"] = _variable(
        "HOCKET_ON_SAME_BATCHES",
        "What a job does whose ranks train on the same batches: `warn`, `stop`, or `off`, where that is meant.",
        one_of(Found),
        "warn",
    )
    sentinel: bool = _variable(
        "HOCKET_SENTINEL",
        "0: merged and late gradients begin at once, and nobody watches whether training goes on as without.",
        flag,
        True,
    )
    guard: Literal["full", "paper", "off"] = _variable(
        "HOCKET_GUARD",
        "What merged and late gradients must pass before they are used: `full` (all checks), `paper` (DeFT's ratio) or `off`.",
        one_of(Guard),
        "full",
    )
    servers: int = _variable(
        "HOCKET_SERVERS",
        "How many of the ranks, the last ones, are parameter servers; 0: all-reduce.",
        whole,
        0,
    )
    helpers: int = _variable(
        "HOCKET_HELPERS",
        "How many of the ranks, the last ones, train nothing and only own what the plan gives them; 0: all train.",
        whole,
        0,
    )
    staleness: str = _variable(
        "HOCKET_STALENESS",
        "Iterations that workers of parameter servers may be apart: 0 for synchronous, K, or `any`.",
        str,
        "0",
    )
    server_bucket_bytes: int = _variable(
        "HOCKET_SERVER_BUCKET_BYTES",
        "Size up to which parameters travel together to and from servers; 0: each by itself.",
        whole,
        1 << 20,
    )
    builder: str | None = _variable(
        "HOCKET_BUILDER",
        "Builder whose plans a search tries, too, on rank 0: FILE.py[:CLASS], or a ready-made one's name, with settings.",
    )
    builder_timeout_s: float = _variable(
        "HOCKET_BUILDER_TIMEOUT_S",
        "Seconds that a builder of the user's may take to make one plan.",
        seconds,
        60.0,
    )
    timer_interval_s: float | None = _variable(
        "HOCKET_TIMER_INTERVAL_S", "Seconds between calls of a policy's `on_timer`.", seconds
    )
    reorder: bool = _variable(
        "HOCKET_REORDER",
        "1: a job changes the rank orders of a plan that it was given when its network makes others faster.",
        flag,
        False,
    )
    cluster: str | None = _variable(
        "HOCKET_CLUSTER",
        "Cluster file: the default plan is made for it, and connections are as many as it says paths need.",
    )
    autopilot: bool = _variable(
        "HOCKET_AUTOPILOT",
        "0: a job does not look at its network as it starts, and keeps its plan while it trains, unless a search or HOCKET_REORDER "
        "asks for another.",
        flag,
        True,
    )
    search: str | None = _variable(
        "HOCKET_SEARCH",
        "How long a job tries plans while it trains, such as `20m`, `90s` or `1h`, to keep the fastest; else it does not.",
    )
    tuning: str | None = _variable(
        "HOCKET_TUNING", "Tuning file that algorithms are chosen by; rank 0's counts."
    )
    cache: str | None = _variable(
        "HOCKET_CACHE",
        "Directory of compiled programs and of what jobs found out; else `hocket` in the user's caches.",
    )
    cache_bytes: int = _variable(
        "HOCKET_CACHE_BYTES", "Size up to which these are kept there; 0: nothing is.", whole, 1 << 28
    )
    profile_out: str | None = _variable("HOCKET_PROFILE_OUT", "Profile the script, write here, and stop.")
    steps_max: int | None = _variable(
        "HOCKET_STEPS_MAX",
        "End the script after so many steps of its optimizer; else it ends by itself.",
        count,
    )
    trace: str | None = _variable("HOCKET_TRACE", "Directory to write a trace to.")
    trace_steps: str | None = _variable(
        "HOCKET_TRACE_STEPS",
        "Steps A:B whose events are in the trace, without B and as in Python: `100:110`, `100:`, `:10`; else all.",
        steps,
    )
    trace_bytes: int | None = _variable(
        "HOCKET_TRACE_BYTES",
        "Size up to which each rank's file of events grows, such as `100M`; later events are counted. Else 4 GiB.",
        trace_bytes,
    )
    emulated_links: str | None = _variable(
        "HOCKET_EMULATED_LINKS", "File of an emulated network whose rates the wire keeps by itself."
    )
    checksum: bool | None = _variable(
        "HOCKET_CHECKSUM",
        "1: frames between hosts carry a CRC32C, and damage fails the job; 0: they carry none. Else they do on TCP connections of "
        "our own without TLS.",
        flag,
    )
    on_drift: Literal["stop", "warn", "off"] = _variable(
        "HOCKET_ON_DRIFT",
        "What a job does whose ranks hold other parameters, or step with other options, where these must be equal: `stop`, `warn`, "
        "or `off`, which does not look. Looking takes a thousandth of a step.",
        one_of(Found),
        "stop",
    )
    tls: bool = _variable(
        "HOCKET_TLS",
        "1: connections between hosts are TLS 1.3, bound to a secret that only the job's ranks know.",
        flag,
        False,
    )
    wire: str = _variable(
        "HOCKET_WIRE",
        "What carries gradients between hosts: tcp: connections of our own; fabric:efa, fabric:tcp, fabric:udp, fabric:shm: "
        "libfabric; fabric:auto: EFA where there is one.",
        str,
        "tcp",
    )
    live_interval_s: float = _variable(
        "HOCKET_LIVE_INTERVAL_S",
        "Seconds between a rank's reports of how it gets on, which `hocket top` shows; 0: it reports nothing.",
        patience,
        1.0,
    )
    late_s: float = _variable(
        "HOCKET_LATE_S",
        "Seconds, beside two steps, for which all others wait before the launcher or rank 0 warns of a rank with its Python stack; "
        "0: nobody warns (docs/monitoring.md).",
        patience,
        0.5,
    )
    dumps: str | None = _variable(
        "HOCKET_DUMPS",
        "Directory to which each rank writes what it had called when the job fails, as PyTorch's `fr_trace` reads it; else none is "
        "written (docs/it-hangs.md).",
    )
    metrics: str | None = _variable(
        "HOCKET_METRICS",
        "[ADDRESS:]PORT at which the launcher or rank 0 serves the job's metrics to Prometheus, on loopback unless told; else it "
        "does not (docs/monitoring.md).",
    )
    metrics_token: str | None = _variable(
        "HOCKET_METRICS_TOKEN",
        "Bearer token that a scrape of the metrics must carry: yours to give, and needed where other machines reach them.",
    )
    report_token: str | None = _variable(
        "HOCKET_REPORT_TOKEN",
        "Token that a reader of `hocket report --live` must give: yours to choose, and needed where other machines reach it.",
    )
    log: str | None = _variable(
        "HOCKET_LOG",
        "Levels of log lines, for all or by part: `info`, `debug`, `warning,store=debug`; else warnings (docs/logs.md).",
        log_levels,
    )
    threads: int = _variable("HOCKET_THREADS", "Native threads of each rank.", count, 1)
    timeout_s: float = _variable(
        "HOCKET_TIMEOUT_S", "Longest wait for other ranks in a step, seconds.", seconds, 300.0
    )
    heartbeat_timeout_s: float | None = _variable(
        "HOCKET_HEARTBEAT_TIMEOUT_S",
        "Longest silence of a rank that is waited for, seconds; a live rank answers whatever its script does. Else 30; in elastic "
        "jobs 5, and a host that acknowledges nothing is given up after three of TCP's time-outs.",
        seconds,
    )
    start_timeout_s: float = _variable(
        "HOCKET_START_TIMEOUT_S", "Longest wait for ranks to meet, seconds.", seconds, 60.0
    )

    def __post_init__(self) -> None:
        """Check numbers, wherever they come from. UsageError: a number is outside its range."""
        for setting in fields(self):
            value, parse = getattr(self, setting.name), setting.metadata["parse"]
            if parse in CHECKED and value is not None:
                _parsed(f"{setting.name}={value}", str(value), parse)

    @property
    def port_range(self) -> tuple[int, int]:
        """First and last port at which this host may listen; zeros: any."""
        if self.ports is None:
            return 0, 0
        first, last = map(int, self.ports.split("-"))
        return first, last

    def silence_max_s(self, *, elastic: bool) -> float:
        """Return the longest silence of a rank that is waited for. Elastic jobs, which can go on without it, wait less."""
        if self.heartbeat_timeout_s is not None:
            return self.heartbeat_timeout_s
        return SILENCE_MAX_OF_MEMBERS_S if elastic else SILENCE_MAX_S

    def silence_by_path(self, *, elastic: bool) -> bool:
        """Return whether a rank whose host acknowledges nothing any more is given up before that: in elastic jobs, unless somebody
        has said how long silence is to be borne."""
        return elastic and self.heartbeat_timeout_s is None

    def with_another_launcher_s(self, timeout_s: float) -> float:
        """Return the time-out in an elastic job with a journal, where another launcher may have to come first."""
        return timeout_s + (self.coordinator_timeout_s or 0.0)

    def refuse_bounds_of_nothing(self) -> None:
        """Raise UsageError if a trace is bounded, and none is written. Newcomers of a job have its bounds, and no trace."""
        given = {"HOCKET_TRACE_STEPS": self.trace_steps, "HOCKET_TRACE_BYTES": self.trace_bytes}
        names = [name for name, value in given.items() if value is not None]
        if names and self.trace is None and not self.joins:
            raise UsageError(
                f"{' and '.join(names)}: no trace is written that could be bounded\n"
                "hint: give --trace DIR or HOCKET_TRACE as well"
            )

    def refuse_builder_without_search(self, *, searches: bool | None = None) -> None:
        """Raise UsageError if a builder is asked for, and no search would try its plans. `searches`: also by an argument."""
        if self.builder is not None and not (self.search is not None if searches is None else searches):
            raise UsageError(
                f"builder {self.builder}: no search would try its plans\n"
                "hint: --search TIME as well; `hocket plan --builder` makes a plan file of it, for `hocket run --plan`"
            )

    @property
    def checksums(self) -> bool:
        """True if frames between hosts carry a checksum. TLS finds damage by itself; the cost elsewhere is not known."""
        return (not self.tls and self.wire == "tcp") if self.checksum is None else self.checksum

    @property
    def warns_of_late(self) -> bool:
        """True if somebody warns of ranks that are late, by what ranks report."""
        return bool(self.late_s and self.live_interval_s)

    @property
    def besides(self) -> int:
        """Number of ranks, the last ones, that do not train."""
        return self.servers + self.helpers

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all variables that are read."""
        return [setting.metadata["name"] for setting in fields(cls)]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read all variables. UsageError names a variable that does not parse, and unknown ones."""
        source = os.environ if environment is None else environment
        unknown_variables.refuse(source, cls.names())
        values: dict[str, Any] = {}
        for setting in fields(cls):
            name, parse = setting.metadata["name"], setting.metadata["parse"]
            if text := source.get(name):
                values[setting.name] = _parsed(f"{name}: {text!r}", text, parse)
        return cls(**values)

    def to_environment(self) -> dict[str, str]:
        """Return the variables that give these settings; those at their default are left out."""
        values = {
            setting.metadata["name"]: (getattr(self, setting.name), setting.default)
            for setting in fields(self)
        }
        return {
            name: str(int(value) if isinstance(value, bool) else value)
            for name, (value, default) in values.items()
            if value != default
        }


CHECKED = (log_levels, count, whole, patience, seconds, steps, trace_bytes)
"""Parsers of numbers and ranges, which also check arguments of functions and of the command line."""


def _parsed(given: str, text: str, parse: Callable[[str], Any]) -> Any:
    """Parse `text`. UsageError: `given` does not parse."""
    try:
        return parse(text)
    except ValueError:
        what = (parse.__doc__ or parse.__name__).partition("\n")[0].rstrip(".")
        raise UsageError(f"{given} is not {what[:1].lower()}{what[1:]}") from None


def log_of(environment: Mapping[str, str]) -> str | None:
    """Return HOCKET_LOG, if it is set, for commands that need no other setting. UsageError: it does not parse."""
    text = environment.get("HOCKET_LOG")
    return _parsed(f"HOCKET_LOG: {text!r}", text, log_levels) if text else None
