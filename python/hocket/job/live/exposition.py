"""View of a job as metrics, for Prometheus and whatever else reads OpenMetrics. Loads `prometheus_client` (extra `metrics`).

Names and units are by the conventions of OpenMetrics: seconds and bytes, `_total` for sums since the start. Labels: `rank`; of
traffic also `peer`, the rank that receives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from hocket.job.live.observer import Seen, View


def exposed(view: View, accepts: str) -> tuple[bytes, str]:
    """Return the metrics and their content type: OpenMetrics for who accepts that, else the older text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_View(view))
    encode, content_type = choose_encoder(accepts)
    return encode(registry), content_type


class _View:
    """Collector of one view."""

    def __init__(self, view: View) -> None:
        self._view = view

    def describe(self) -> Iterable[Metric]:
        """Return nothing: a view is collected once."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return all families."""
        view = self._view
        yield from _of_job(view)
        yield from _of_ranks(view)
        yield _info(view)
        yield _sent(view)


def _of_job(view: View) -> Iterator[Metric]:
    world = max((each.status.world for each in view.ranks.values()), default=0)
    lost = sum(each.fault is not None for each in view.gone.values())
    yield GaugeMetricFamily("hocket_ranks", "Ranks of the job.", value=world)
    yield GaugeMetricFamily("hocket_reporting_ranks", "Ranks that have reported.", value=len(view.ranks))
    yield GaugeMetricFamily("hocket_lost_ranks", "Ranks that ended or lost their connection.", value=lost)
    late = GaugeMetricFamily(
        "hocket_late",
        "1 for the rank for which the others wait, by how that is known.",
        labels=["rank", "how"],
    )
    if view.blame is not None:
        late.add_metric([str(view.blame.rank), view.blame.how], 1)
    yield late
    if view.network_s is not None:
        yield GaugeMetricFamily(
            "hocket_network_wait_seconds",
            "Part of a step that even the rank which waits least waits.",
            value=view.network_s,
        )
    if view.goodput is not None:
        yield GaugeMetricFamily(
            "hocket_goodput_ratio", "Share of an elastic job's work that stands.", value=view.goodput
        )


GAUGES: tuple[tuple[str, str, Callable[[Seen], float | None]], ...] = (
    ("hocket_report_age_seconds", "Time since a rank has reported last.", lambda each: each.age_s),
    ("hocket_step_seconds", "Time of a step, a median over recent ones.", lambda each: each.status.step_s),
    ("hocket_wait_seconds", "Part of a step spent waiting, a median.", lambda each: each.status.wait_s),
    (
        "hocket_loading_seconds",
        "Part of a step until forward begins, a median.",
        lambda each: each.status.loading_s,
    ),
    (
        "hocket_doing_seconds",
        "Time for which a rank does what it does now.",
        lambda each: each.status.doing_s,
    ),
    ("hocket_waiting", "1 if a rank waits now.", lambda each: float(each.status.doing == "waiting")),
    ("hocket_epoch", "Number of the plan's epoch.", lambda each: each.status.epoch),
    ("hocket_resident_memory_bytes", "Memory of a rank's process.", lambda each: each.status.resident_bytes),
)
COUNTERS: tuple[tuple[str, str, Callable[[Seen], float | None]], ...] = (
    ("hocket_steps", "Steps that a rank's process has made.", lambda each: each.status.steps),
    ("hocket_training_seconds", "Time in steps but the first.", lambda each: each.status.step_s_total),
    (
        "hocket_waited_seconds",
        "Time in steps spent waiting for other ranks and the network.",
        lambda each: None if each.status.wait_s is None else each.status.wait_s_total,
    ),
    (
        "hocket_loaded_seconds",
        "Time in steps between the optimizer's step and the next forward.",
        lambda each: None if each.status.loading_s is None else each.status.loading_s_total,
    ),
)


def _of_ranks(view: View) -> Iterator[Metric]:
    for kind, families in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
        for name, text, value_of in families:
            family = kind(name, text, labels=["rank"])
            for rank, seen in view.ranks.items():
                value = value_of(seen)
                if value is not None:
                    family.add_metric([str(rank)], value)
            yield family


def _info(view: View) -> Metric:
    labels = ["rank", "host", "member", "process", "plan", "promise"]
    family = GaugeMetricFamily(
        "hocket_rank_info", "1 for each rank, with what is known of it.", labels=labels
    )
    for rank, seen in view.ranks.items():
        status = seen.status
        values = (rank, status.host, status.member, status.process, status.plan, status.promise)
        family.add_metric([str(each) for each in values], 1)
    return family


def _sent(view: View) -> Metric:
    family = CounterMetricFamily(
        "hocket_sent_bytes", "Bytes sent over network connections, by receiver.", labels=["rank", "peer"]
    )
    for rank, seen in view.ranks.items():
        for each in seen.status.sent:
            family.add_metric([str(rank), str(each.peer)], each.bytes)
    return family
