"""Section on the facts needed to run the job again: date, script, world, hosts, versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import starmap

from hocket import __version__
from hocket.tools.report import quantity
from hocket.tools.report.markup import tag
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section

# Names in one line; the matrices show more of them.
HOSTS_MAX = 16


def section(material: Material) -> Section:
    run = material.run
    hosts = list(dict.fromkeys(run.hosts))
    more = f" and {len(hosts) - HOSTS_MAX} more" if len(hosts) > HOSTS_MAX else ""
    entries = {
        "Script": run.script,
        "Started": _date(run.started_at),
        "World": f"{_count(run.world, 'rank')} on {_count(len(hosts), 'host')}",
        "Hosts": ", ".join(hosts[:HOSTS_MAX]) + more,
        "No direct way": "; ".join(
            _way([f"rank {rank} on {run.hosts[rank]}" for rank in way]) for way in run.relays
        ),
        "Network measured": _date(run.cluster.measured_at if run.cluster else None),
        "Model": _model(material),
        "Records": f"{sum(map(len, material.records)):,}",
        "Clocks": _clocks(material),
        "Versions": ", ".join(
            (*starmap("{} {}".format, run.versions.items()), f"trace format {run.version}")
        ),
        "Report by": f"Hocket {__version__}",
    }
    items = [tag("div", tag("dt", name), tag("dd", value)) for name, value in entries.items() if value]
    numbers = {
        "script": run.script,
        "started_at": run.started_at,
        "world": run.world,
        "hosts": run.hosts,
        "relays": run.relays,
        "versions": run.versions,
        "clock_errors_ns": material.clock_errors_ns,
    }
    return Section("facts", "What exactly was run?", tag("dl", *items, class_="facts"), numbers=numbers)


def _way(ranks: Sequence[str]) -> str:
    return f"{ranks[0]} and {ranks[-1]} reach each other through {', '.join(ranks[1:-1])}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _clocks(material: Material) -> str:
    """Return text on the clocks' errors, which add up between two ranks."""
    known = sorted(error_ns for error_ns in material.clock_errors_ns if error_ns is not None)
    if len(known) < material.run.world:
        return "not all are known against the job's: times of different hosts do not compare"
    apart_ns = sum(known[-2:])
    return (
        f"of two ranks agree within {quantity.seconds(apart_ns * 1e-9)}" if apart_ns else "one for all ranks"
    )


def _date(text: str | None) -> str:
    """Return a date in the usual notation, with its offset; any other text is unchanged."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return text or ""
    zone = moment.strftime("%Z") or "local time"
    return f"{moment.day} {moment:%B %Y}, {moment:%H:%M:%S} {zone}"


def _model(material: Material) -> str:
    profile = material.run.profile
    if profile is None:
        return ""
    elements = sum(gradient.elements for gradient in profile.gradients)
    millions = quantity.digits(elements / 1e6)
    return f"{profile.model}, {millions} million parameters in {len(profile.gradients)} tensors"
