"""What exactly was run? Date, script, world, hosts, versions: what is needed to run it again."""

from __future__ import annotations

from hocket import __version__
from hocket.report import quantity
from hocket.report.markup import tag
from hocket.report.material import Material
from hocket.report.section import Section

# Names in one line; the matrices show more of them.
HOSTS_MAX = 16


def section(material: Material) -> Section:
    """A list of terms."""
    run = material.run
    hosts = list(dict.fromkeys(run.hosts))
    more = f" and {len(hosts) - HOSTS_MAX} more" if len(hosts) > HOSTS_MAX else ""
    entries = {
        "Script": run.script,
        "Started": run.started_at,
        "World": f"{run.world} ranks on {len(hosts)} hosts",
        "Hosts": ", ".join(hosts[:HOSTS_MAX]) + more,
        "Network measured": (run.cluster.measured_at or "") if run.cluster else "",
        "Model": _model(material),
        "Records": f"{sum(len(r) for r in material.records if r is not None):,}",
        "Versions": f"trace format {run.version}, report by Hocket {__version__}",
    }
    items = [tag("div", tag("dt", name), tag("dd", value)) for name, value in entries.items() if value]
    numbers = {"script": run.script, "started_at": run.started_at, "world": run.world, "hosts": run.hosts}
    return Section("facts", "What exactly was run?", tag("dl", *items, class_="facts"), numbers=numbers)


def _model(material: Material) -> str:
    profile = material.run.profile
    if profile is None:
        return ""
    elements = sum(gradient.elements for gradient in profile.gradients)
    return f"{profile.model}, {quantity.digits(elements / 1e6)} million parameters in {len(profile.gradients)} tensors"
