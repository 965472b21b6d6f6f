"""Hosts with several network cards, and jobs that spread their connections over them."""

import json
import secrets
import subprocess
import sys

import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import TestbedError, UsageError
from hocket.launch.testbed import Testbed

TIMEOUT_S = 60
ELEMENTS = 1_500_000

RANK = f"""
import json, subprocess
import numpy as np
from hocket.artefacts.plan import Synchroniser
from hocket.launch.rendezvous import join
from hocket.planners.compile import all_reduce_program

def sent():
    found = json.loads(subprocess.run(["ip", "-s", "-j", "link"], capture_output=True, check=True).stdout)
    return {{each["ifname"]: each["stats64"]["tx"]["bytes"] for each in found}}

with join() as job:
    engine = job.engine()
    memory = engine.allocate({ELEMENTS} * 4)
    values = np.frombuffer(memory, np.float32)
    program = all_reduce_program(
        world=job.world, elements={ELEMENTS}, dtype="f32", op="sum", scale=1.0, synchroniser=Synchroniser(algorithm="ring")
    )
    number = engine.load(program, {{0: (memory, 0)}}, priority=0, label="bucket")
    before = sent()
    for step in range(4):
        values[:] = np.arange({ELEMENTS}) % 64 + job.rank + step
        engine.launch(number)
        engine.wait(number, {TIMEOUT_S})
        assert (values == 2 * (np.arange({ELEMENTS}) % 64) + 1 + 2 * step).all()
    after = sent()
    print(json.dumps([job.addresses, {{name: after[name] - before[name] for name in ("eth0", "eth1")}}]))
    job.store.gather("done", job.rank, job.world, 0, {TIMEOUT_S})
    engine.close()
"""


def two(cards=(100e6, 50e6)):
    hosts = [
        Host(name=name, bandwidth_bit_per_s=sum(cards), cards_bit_per_s=cards, address=None) for name in "ab"
    ]
    return Cluster(hosts=tuple(hosts))


@pytest.fixture(scope="module", autouse=True)
def _allowed():
    try:
        with Testbed(two()):
            pass
    except TestbedError as error:
        pytest.skip(f"no namespaces here: {error}")


def ranks(bed, interfaces, **settings):
    secret = secrets.token_hex(32)
    store = f"{bed.address('a')}:29400"
    made = [
        bed.popen(
            host,
            [
                "env",
                f"HOCKET_RANK={rank}",
                "HOCKET_WORLD=2",
                f"HOCKET_STORE={store}",
                f"HOCKET_SECRET={secret}",
            ]
            + [f"HOCKET_HOST={host}", f"HOCKET_INTERFACE={interfaces[rank]}"]
            + [f"{name}={value}" for name, value in settings.items()]
            + [sys.executable, "-c", RANK],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, host in enumerate("ab")
    ]
    said = [process.communicate(timeout=TIMEOUT_S) for process in made]
    assert [process.returncode for process in made] == [0, 0], said
    return [json.loads(out) for out, _ in said]


def test_connections_are_spread_over_the_cards_by_their_rates():
    """The second card would idle, or the slower one would be given as much as the faster and hold every bucket up."""
    with Testbed(two()) as bed:
        found = ranks(bed, ["all", "10.77.0.0/16,eth1"])
    assert [addresses for addresses, _ in found] == [["10.77.0.1", "10.78.0.1"], ["10.77.0.2", "10.78.0.2"]]
    for _, sent in found:
        share = sent["eth1"] / (sent["eth0"] + sent["eth1"])
        assert 0.2 < share < 0.45, sent


def test_one_interface_and_several_streams():
    """HOCKET_STREAMS would not be heeded, or traffic would go where the user did not say."""
    with Testbed(two()) as bed:
        found = ranks(bed, ["eth1", "eth1"], HOCKET_STREAMS=3)
    for addresses, sent in found:
        assert len(addresses) == 1
        assert sent["eth0"] < 0.02 * sent["eth1"]


def test_cards_that_do_not_add_up_are_refused():
    """A plan would count on a rate that the testbed does not have."""
    host = Host(name="a", bandwidth_bit_per_s=1e9, cards_bit_per_s=(1e8, 1e8))
    with pytest.raises(TestbedError, match=r"host a: 2 cards .*\nhint"), Testbed(Cluster(hosts=(host,))):
        pass
    late = Host(name="a", bandwidth_bit_per_s=2e8, cards_bit_per_s=(1e8, 1e8), latency_s=1e-3)
    with pytest.raises(UsageError, match="one card"):
        Testbed(Cluster(hosts=(late,)))
