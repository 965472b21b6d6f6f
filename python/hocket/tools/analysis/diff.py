"""Differences between two traces: each quantity side by side, and layers and pairs that only one has."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from hocket.tools.analysis.analyse import Analysis
from hocket.tools.analysis.summary import Summary


class Difference(Struct, frozen=True, kw_only=True):
    """Quantity in both traces; its unit is at the end of its name. None: not in that trace. `ratio` is b / a."""

    quantity: str
    a: float | None
    b: float | None
    ratio: float | None


class Diff(Struct, frozen=True, kw_only=True):
    differences: tuple[Difference, ...]
    layers_only_in_a: tuple[str, ...]
    layers_only_in_b: tuple[str, ...]
    layers_of_other_size: tuple[str, ...]
    pairs_only_in_a: tuple[str, ...]
    pairs_only_in_b: tuple[str, ...]


def diff(a: Analysis, b: Analysis) -> Diff:
    left, right = dict(_quantities(a)), dict(_quantities(b))
    differences = []
    for name in dict.fromkeys([*left, *right]):
        one, other = left.get(name), right.get(name)
        ratio = None if one is None or other is None or one == 0 else other / one
        differences.append(Difference(quantity=name, a=one, b=other, ratio=ratio))
    layers = [{each.name: each.longest_bytes for each in trace.sizes.layers} for trace in (a, b)]
    pairs = [{f"{each.source} to {each.destination}" for each in trace.volume.pairs} for trace in (a, b)]
    return Diff(
        differences=tuple(differences),
        layers_only_in_a=tuple(name for name in layers[0] if name not in layers[1]),
        layers_only_in_b=tuple(name for name in layers[1] if name not in layers[0]),
        layers_of_other_size=tuple(
            name for name, size in layers[0].items() if layers[1].get(name, size) != size
        ),
        pairs_only_in_a=tuple(sorted(pairs[0] - pairs[1])),
        pairs_only_in_b=tuple(sorted(pairs[1] - pairs[0])),
    )


def _quantities(trace: Analysis) -> Iterator[tuple[str, float | None]]:
    yield "messages", trace.sizes.messages
    yield "sent_bytes", trace.sizes.sent_bytes
    yield "received_bytes", trace.sizes.received_bytes
    yield "layers", len(trace.sizes.layers)
    for each in trace.phases:
        worker = f"worker {each.node}: "
        yield worker + "iterations", each.iterations
        times: dict[str, Summary | None] = {
            "iteration": each.iteration,
            "computation": each.computation,
            "pure computation": each.pure_computation,
            "overlapped": each.overlapped,
            "communication": each.communication,
            "waiting": each.waiting,
        }
        yield from _means(worker, times)
        yield worker + "overlap ratio", each.overlap_ratio
    for server in trace.servers:
        times = {"search": server.search, "synchronisation": server.synchronisation, "update": server.update}
        yield from _means(f"server {server.node}: ", times)
    for path in trace.critical_paths:
        for link in path.links:
            yield (
                f"worker {path.node}: critical path, {link.bound.partition(':')[2].strip()}, mean_us",
                link.time.mean_us,
            )
    for bound in trace.launch_path.bounds if trace.launch_path else ():
        yield f"critical path, {bound.bound}, mean_us", bound.time.mean_us


def _means(
    whose: str, times: dict[str, Summary] | dict[str, Summary | None]
) -> Iterator[tuple[str, float | None]]:
    for name, summary in times.items():
        if summary is not None:
            yield f"{whose}{name}, mean_us", summary.mean_us
