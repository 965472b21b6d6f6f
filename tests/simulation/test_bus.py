"""Gradients on a device: their copies in the simulator, in the closed form and in plans."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from benches.routes import staged
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import AllReduce, Owned, Owner, Route
from hocket.artefacts.profile import Bus, Gradient, Profile
from hocket.errors import ArtefactError, UsageError
from hocket.planning import cost, search
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.search import neutral_profile
from hocket.tools.simulation import fidelity

WORLD = 4
ROUTES: dict[str, Route] = {
    "ring": AllReduce(algorithm="ring"),
    "two-level": AllReduce(algorithm="two_level", sizes=(2, 2)),
    "owners": Owned(owners=tuple(Owner(rank=rank) for rank in range(WORLD))),
}
TOLERANCE = 0.15
"""Tolerance between closed form and flows, the same as in `test_fidelities.py`."""


def cluster(bit_per_s: float) -> Cluster:
    return Cluster(hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=bit_per_s) for at in range(WORLD)))


def profile(bytes_per_s: float | None, count: int = 8, size_bytes: int = 16 << 20) -> Profile:
    """Gradients that come at once; `bytes_per_s`: of their bus, or None."""
    each = [
        Gradient(name=f"g{at}", shape=(size_bytes // 4,), dtype="f32", ready_s=0.0, needed_s=0.0)
        for at in range(count)
    ]
    rates = {} if bytes_per_s is None else {"down_bytes_per_s": bytes_per_s, "up_bytes_per_s": bytes_per_s}
    bus = Bus(**rates, copy_s=10e-6) if rates else None
    return msgspec.structs.replace(neutral_profile(each), bus=bus)


def steps_s(route: str, own: Profile, bit_per_s: float) -> tuple[float, float]:
    """A step by the closed form, and by flows."""
    made = buckets([(each,) for each in own.gradients], ROUTES[route], range(WORLD))
    plan = plan_of(made, WORLD, label=route)
    by_form = cost.predict(plan, cluster(bit_per_s), own).step_s
    return by_form, fidelity.predict(plan, cluster(bit_per_s), own).step_s


def test_copies_hide_behind_the_wire() -> None:
    """Broken: gradients on a device would leave when all are down, and go up when all are summed."""
    for row in staged.simulated():
        assert row.value >= 1.0, row
        assert row.met, row


@pytest.mark.parametrize("route", ROUTES)
def test_a_bus_counts_where_it_is_slower_than_the_wire(route: str) -> None:
    """Broken: `hocket plan` and `hocket simulate` would promise steps that no device can have, or disagree on them."""
    size = sum(each.elements for each in profile(None).gradients) * 4
    for bit_per_s, bytes_per_s in itertools.product((1e9, 25e9), (0.5e9, 12e9)):
        form_s, flow_s = steps_s(route, profile(bytes_per_s), bit_per_s)
        assert form_s == pytest.approx(flow_s, rel=TOLERANCE), (bit_per_s, bytes_per_s)
        assert min(form_s, flow_s) >= size / bytes_per_s
        for staged_s, plain_s in zip((form_s, flow_s), steps_s(route, profile(None), bit_per_s), strict=True):
            # Messages that come at other times may wait for one another less.
            assert staged_s > 0.99 * plain_s
            if bytes_per_s > bit_per_s:
                assert staged_s < 1.1 * plain_s


def test_the_planner_is_told() -> None:
    """Broken: the search would compare plans, and give their times, as if copies were free."""
    slow, plain = (search.plan(cluster(10e9), own, WORLD) for own in (profile(0.5e9), profile(None)))
    size = sum(each.elements for each in profile(None).gradients) * 4
    assert slow.predicted_step_s >= size / 0.5e9 > plain.predicted_step_s


def test_simgrid_is_not_asked() -> None:
    """Broken: SimGrid would say of a device's gradients what holds for the processor's."""
    plan = search.plan(cluster(10e9), profile(None), WORLD)
    with pytest.raises(UsageError, match="no bus of devices"):
        fidelity.predict(plan, cluster(10e9), profile(12e9), fidelity="simgrid")


def test_a_bus_without_a_rate_is_refused(tmp_path: Path) -> None:
    """Broken: a damaged profile would make each plan endless, or free."""
    path = tmp_path / "profile.json"
    files.write(path, profile(12e9))
    assert files.read(path, Profile) == profile(12e9)
    path.write_text(path.read_text().replace("12000000000.0", "0.0"))
    with pytest.raises(ArtefactError, match="down_bytes_per_s"):
        files.read(path, Profile)
