"""The backend `hocket` of torch.distributed in real processes: on one host, and on several (whose ranks do without shared memory).

PyTorch's own tests run by `make test-torch`; here is what they do not ask.
"""

import io
from pathlib import Path

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.tools.testbed import Testbed
from tests.support import warm

RANK = Path(__file__).parent / "backend_rank.py"


def run(case, hosts, tmp_path, timeout_s=30):
    out = io.BytesIO()
    specs = [
        ProcessSpec(
            argv=warm.command(RANK, case, str(tmp_path / "store")),
            host=host,
            environment={"TEST_TIMEOUT_S": str(timeout_s)},
        )
        for host in hosts
    ]
    outcome = launch(specs, settings=Settings(timeout_s=60, start_timeout_s=60), out=out, err=out)
    return outcome.code, out.getvalue().decode()


def assert_right(case, hosts, tmp_path, timeout_s=30, but=0):
    code, output = run(case, hosts, tmp_path, timeout_s)
    assert output.count("is right") == len(hosts) - but, output
    assert code == 0 or but, output


@pytest.mark.parametrize("hosts", ["aaaa", "abab", "abc"])
def test_collectives(hosts, tmp_path):
    """A program that knows nothing of Hocket would get other tensors than with another backend."""
    assert_right("collectives", hosts, tmp_path)


def test_what_is_overwritten_while_others_read_it(tmp_path):
    """Memory that ranks of one host take from one another would change under their hands."""
    assert_right("in_place", "aaa", tmp_path)


@pytest.mark.parametrize("hosts", ["aaa", "aab"])
def test_messages(hosts, tmp_path):
    """Pipelines would get each other's activations, or wait for ever."""
    assert_right("messages", hosts, tmp_path)


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_different_calls_are_named(hosts, tmp_path):
    """Ranks that took different branches would reduce one tensor into another, or wait for each other."""
    # No time-out ends the waits before the deadline of tests does.
    assert_right("different_calls", hosts, tmp_path, timeout_s=900)


def test_sizes_that_differ_are_named(tmp_path):
    """A message of another size than expected would write past a tensor's end."""
    code, output = run("other_sizes", "aa", tmp_path)
    assert "rank 1 is right" in output, output
    assert code != 0 or output.count("is right") == 2


def test_who_stays_away_is_named(tmp_path):
    """A hang, or an error without a name, leaves a user with every rank to look at."""
    assert_right("stays_away", "aa", tmp_path, timeout_s=2)


def test_a_monitored_barrier_names_all_who_stay_away(tmp_path):
    """A program that calls it for that reason would be refused, or told of one rank only."""
    assert_right("is_missed", "aaba", tmp_path)


def test_refusals_and_averages(tmp_path):
    """A refusal far from the call, an average that overflows, and one that changes what it only reads."""
    assert_right("refuses_at_the_call", "aba", tmp_path)


@pytest.mark.parametrize("hosts", ["aaa", "aab"])
def test_a_rank_that_is_killed_ends_the_waits(hosts, tmp_path):
    """The others would wait for the time-out of half an hour."""
    # No time-out ends the waits before the deadline of tests does.
    assert_right("dies", hosts, tmp_path, timeout_s=900, but=1)


@pytest.mark.parametrize(("case", "hosts"), [("ddp", "aaa"), ("ddp", "aab"), ("fsdp", "aa"), ("fsdp", "ab")])
def test_training(case, hosts, tmp_path):
    """DDP, its hook, FSDP2 and checkpoints would train another model."""
    assert_right(case, hosts, tmp_path, timeout_s=60)


def test_power_sgd_on_slow_links(tmp_path):
    """Operations of several buckets at once would meet each other's messages: over Gloo this very job ends so."""
    assert_right_between_hosts("power_sgd", tmp_path)


@pytest.mark.parametrize("case", ["beside_gloo_by_tcp", "beside_gloo_by_file"])
def test_a_group_beside_another_backend_between_hosts(case, tmp_path):
    """The group's store would be looked for on the machine of torch's store, or at a name that is another machine elsewhere."""
    assert_right_between_hosts(case, tmp_path)


def assert_right_between_hosts(case, tmp_path):
    hosts = tuple(Host(name=f"h{at}", rack="r", bandwidth_bit_per_s=2e8) for at in range(4))
    out = io.BytesIO()
    with Testbed(Cluster(hosts=hosts, racks=(Rack(name="r"),))) as testbed:
        specs = [
            ProcessSpec(
                argv=warm.command(RANK, case, str(tmp_path / "store")),
                host=host.name,
                prefix=testbed.command(host.name),
                environment={"GLOO_SOCKET_IFNAME": "eth0", "TEST_MEETING": testbed.address("h0")},
            )
            for host in hosts
        ]
        outcome = launch(
            specs,
            settings=Settings(timeout_s=60, start_timeout_s=60),
            store=addresses.join(testbed.address("h0"), 29_400),
            serve=False,
            out=out,
            err=out,
        )
    output = out.getvalue().decode()
    assert output.count("is right") == 4, output
    assert outcome.code == 0, output
