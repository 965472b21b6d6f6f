"""A job whose network changes while it trains: it goes on in a better order, once, and all ranks keep the same model."""

import io
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce
from hocket.errors import UsageError
from hocket.launch.processes import ProcessSpec
from hocket.launch.run import launch
from hocket.launch.testbed import Testbed
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.ordering.current import Sample
from hocket.planning.ordering.monitor import Monitor
from hocket.settings import Settings
from hocket.training.reorder import decode, encode, of_ranks
from tests.support import warm

Emulated = Callable[[Cluster], AbstractContextManager[Testbed]]
HOSTS = 4
PORT = 29_451
SCRIPT = Path(__file__).with_name("reorder_rank.py")


def train(emulated: Emulated, directory: Path, *, steps: int, slow_at: int, slow: str) -> list[dict]:
    cluster = Cluster(
        hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=4e8) for at in range(HOSTS)),
        racks=(Rack(name="rack0"),),
    )
    with emulated(cluster) as bed:
        argv = warm.command(SCRIPT, str(directory), str(steps), str(slow_at), slow)
        specs = [
            ProcessSpec(
                argv=argv,
                host=host.name,
                prefix=bed.command(host.name),
                environment={"OMP_NUM_THREADS": "1"},
            )
            for host in cluster.hosts
        ]
        out = io.BytesIO()
        outcome = launch(
            specs,
            settings=Settings(reorder_interval_s=0.2, timeout_s=60, start_timeout_s=60),
            store=f"{bed.address('h0')}:{PORT}",
            serve=False,
            out=out,
            err=out,
        )
    said = out.getvalue().decode()
    if "u32" in said or "htb" in said:
        pytest.skip("this kernel cannot limit what goes to one host alone")
    assert outcome.code == 0, said
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(HOSTS)]


@pytest.mark.timing
def test_a_link_that_becomes_slow_is_left_once_and_the_model_stays_one(
    emulated: Emulated, tmp_path: Path
) -> None:
    """Broken: a job would crawl for days over a link that became slow, or its ranks would part company when the order changes."""
    ranks = train(emulated, tmp_path, steps=300, slow_at=120, slow="1,2")
    assert len({rank["digest"] for rank in ranks}) == 1
    assert all(rank["began"] == ranks[0]["began"] for rank in ranks)
    (first, before), (step, after) = ranks[0]["began"]
    assert (first, decode(before)) == (0, ((0, 1, 2, 3),))
    assert step > 120
    (order,) = decode(after)
    assert abs(order.index(1) - order.index(2)) == 2, f"{order} still goes over the slow link"


@pytest.mark.timing
def test_a_bad_start_is_repaired(emulated: Emulated, tmp_path: Path) -> None:
    """Broken: a job whose order was bad from the first step on would keep it: nothing changes, so nothing is noticed."""
    ranks = train(emulated, tmp_path, steps=150, slow_at=0, slow="1,2")
    assert len({rank["digest"] for rank in ranks}) == 1
    assert all(rank["began"] == ranks[0]["began"] for rank in ranks)
    (_, before), (_, after) = ranks[0]["began"]
    (order,) = decode(after)
    assert decode(before) == ((0, 1, 2, 3),)
    assert abs(order.index(1) - order.index(2)) == 2, f"{order} still goes over the slow link"


def test_orders_are_agreed_as_text() -> None:
    """Broken: an epoch could not carry orders."""
    orders = ((3, 0, 12, 1), (0, 1, 3, 12))
    assert decode(encode(orders)) == orders
    assert decode(encode(())) == ()


def test_measured_hosts_give_ranks_their_distances() -> None:
    """Broken: what was measured before training would not count."""
    cluster = Cluster(
        hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab"),
        latency_s=((0.0, 1e-3), (3e-3, 0.0)),
        bandwidth_bit_per_s=((1e10, 8e6), (8e8, 1e10)),
    )
    latency_s, s_per_byte, _ = of_ranks(("b", "a", "a"), cluster)
    assert latency_s[0, 1] == latency_s[1, 0] == 3e-3
    assert s_per_byte[0, 1] == s_per_byte[2, 0] == 1e-6
    assert latency_s[1, 2] < 1e-5
    assert (latency_s.diagonal() == 0).all()


def test_racks_of_the_cluster_file_repair_an_order_that_goes_to_and_fro() -> None:
    """Broken: a job whose ranks alternate between racks would cross the trunk at every step, or one that does not would be made to:
    pairs alone do not show that they share it."""
    cluster = Cluster(
        hosts=tuple(Host(name=f"h{at}", rack=f"r{at % 2}", bandwidth_bit_per_s=1e9) for at in range(8)),
        racks=(Rack(name="r0", uplink_bit_per_s=1e9), Rack(name="r1", uplink_bit_per_s=1e9)),
    )
    known = of_ranks(tuple(host.name for host in cluster.hosts), cluster)
    weight, ring = Gradient("w", (1 << 20,), "f32"), AllReduce(algorithm="ring")
    # Every pair tells the same: of a trunk's share nothing is seen here.
    samples = [[None if a == b else Sample(1e-3, 1e6, 1e-2) for b in range(8)] for a in range(8)]
    for given, repaired in (((0, 1, 2, 3, 4, 5, 6, 7), True), ((0, 2, 4, 6, 1, 3, 5, 7), False)):
        plan = plan_of(buckets([[weight]], ring, given), 8, label="")
        monitor = Monitor(plan, *known)
        proposed = [orders for orders in (monitor.observe(samples) for _ in range(20)) if orders is not None]
        assert bool(proposed) == repaired
        for (order,) in proposed:
            assert sum(a % 2 != b % 2 for a, b in pairwise((*order, order[0]))) == 2


@pytest.mark.parametrize("interval", [0.0, -1.0, float("nan"), 1e9])
def test_intervals_that_are_none_are_refused(interval: float) -> None:
    """Broken: a job would spin, or never sample."""
    from hocket.training.reorder import Reorder

    with pytest.raises(UsageError, match="HOCKET_REORDER_INTERVAL_S"):
        Reorder(None, None, None, None, interval_s=interval)  # type: ignore[arg-type]


def test_policies_and_orders_that_are_kept_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a variable that is set would do nothing, and nobody would know."""
    import hocket.torch as hk
    import torch
    from hocket.policies import TwoLevelRing

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UsageError, match="a policy decides for itself"):
        hk.distribute(model, optimizer, policy=TwoLevelRing(), settings=Settings(reorder_interval_s=1.0))
