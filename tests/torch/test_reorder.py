"""A job with a plan of its user's, whose network changes while it trains: it goes on in a better order, with one model."""

import io
import json
from pathlib import Path

import pytest
import torch

from hocket.artefacts import trace
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.errors import UsageError
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import warm
from tests.torch.reorder_rank import alone

pytestmark = pytest.mark.hosts

HOSTS = 4
PORT = 29_451
SCRIPT = Path(__file__).with_name("reorder_rank.py")
STEPS, SLOW_AT = 500, 60
"""Steps after which the ranks give up, and the one at which a path becomes slow."""


def train(emulated, out, slow, kind, **settings):
    """By rank that trains: the digest of its model, and the epoch of each step. `kind`: what another host does, if any."""
    count = HOSTS + (kind != "trains")
    cluster = Cluster(
        hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=4e8) for at in range(count)),
        racks=(Rack(name="rack0"),),
    )
    with emulated(cluster) as bed:
        argv = warm.command(SCRIPT, str(out), str(STEPS), str(SLOW_AT), slow, kind)
        specs = [
            ProcessSpec(
                argv=argv,
                host=host.name,
                prefix=bed.command(host.name),
                environment={"OMP_NUM_THREADS": "1"},
            )
            for host in cluster.hosts
        ]
        said = io.BytesIO()
        outcome = launch(
            specs,
            settings=Settings(timeout_s=60, start_timeout_s=60, **settings),
            store=f"{bed.address('h0')}:{PORT}",
            serve=False,
            out=said,
            err=said,
        )
    text = said.getvalue().decode()
    if "u32" in text or "htb" in text:
        pytest.skip("this kernel cannot limit what goes to one host alone")
    assert outcome.code == 0, text
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(HOSTS)]


@pytest.mark.timing
@pytest.mark.parametrize("kind", ["trains", "serves", "helps"])
def test_a_path_that_becomes_slow_is_left_once_and_the_model_stays_one(emulated, tmp_path, kind):
    """A job would crawl for days over a path that became slow, or its ranks would part company when the order changes."""
    directory = tmp_path / "trace"
    directory.mkdir()
    # Whoever asks for it gets it, also where jobs do not drive themselves.
    ranks = train(emulated, tmp_path, "1,2", kind, reorder=True, autopilot=False, trace=str(directory))
    assert len({rank["digest"] for rank in ranks}) == 1
    assert all(rank["epochs"] == ranks[0]["epochs"] for rank in ranks)
    found = trace.read(directory)
    (adopted,) = (each for each in found.changes() if each.what == "adopted")
    assert adopted.step > SLOW_AT
    bucket = max(found.run.plan.buckets, key=lambda each: each.elements)
    assert bucket.route.algorithm == "ring"
    apart = abs(bucket.order.index(1) - bucket.order.index(2))
    assert apart == 2, f"{bucket.order} still goes over the slow path"
    expected = alone(HOSTS, len(ranks[0]["epochs"]) - 1)
    torch.testing.assert_close(torch.load(tmp_path / "0.pt"), expected, rtol=1e-4, atol=1e-5)


def test_what_does_not_go_with_orders_that_follow_the_network_is_refused():
    """A variable that is set would do nothing, and nobody would know."""
    import hocket.torch as hk
    from hocket.policies import TwoLevelRing

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UsageError, match="a policy decides for itself"):
        hk.distribute(model, optimizer, policy=TwoLevelRing(), settings=Settings(reorder=True))
