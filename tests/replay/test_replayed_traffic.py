"""Traces as traffic: what their messages wait for, on real sockets and in virtual time."""

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.trace import RUN_FILE
from hocket.cli.main import hocket
from hocket.errors import ArtefactError, UsageError
from hocket.tools.replay.of_dlc import of_dlc_files
from hocket.tools.replay.run import traffic_of
from hocket.tools.replay.simulated import predict
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.networks import from_cluster, star
from tests.replay.replay_inputs import COMPUTE_US, ITERATIONS, SIZES, SMALL, UPDATE_US, WORKERS
from tests.support.commands import completed

pytestmark = pytest.mark.hosts

HOCKET = str(Path(sys.executable).with_name("hocket"))


def test_messages_wait_for_what_their_records_name(nodes):
    """A server would answer before the last worker has pushed, and a replay be faster than any network."""
    found = of_dlc_files(nodes)
    assert found.nodes == ("worker 0", "worker 1", "server 0")
    assert len(found.recorded_s) == ITERATIONS - 1
    moved = [message for message in found.messages if not message.is_moment]
    assert len(moved) == ITERATIONS * len(SIZES) * WORKERS * 4
    answers = [message for message in moved if message.source == WORKERS and message.bytes == SMALL]
    for answer in answers:
        (moment,) = answer.after
        pushes = [found.messages[at] for at in found.messages[moment].after]
        assert {push.source for push in pushes} == {0, 1}
        assert answer.gap_s == pytest.approx(UPDATE_US * 1e-6)
    later = [
        message
        for message in moved
        if message.source < WORKERS and message.bytes != SMALL and message.iteration > 0
    ]
    assert all(message.gap_s == pytest.approx(COMPUTE_US * 1e-6) for message in later)


def test_a_recorded_network_gives_the_recorded_time(nodes, cluster):
    """What is predicted of a trace on another network would not even hold on its own."""
    found = of_dlc_files(nodes)
    network = star(3, bit_per_s=1e8, latency_s=0.0)
    own = sum(predict(found, network)) / len(found.recorded_s)
    recorded = sum(found.recorded_s) / len(found.recorded_s)
    # The record has both keys one after the other on the wire; they share it, which changes nothing of its end.
    assert own == pytest.approx(recorded, rel=0.05)


def test_what_if_computation_or_network_were_others(nodes, cluster):
    """Faster machines or a faster network would change nothing, or too much."""
    found = of_dlc_files(nodes)
    network = star(3, bit_per_s=1e8)
    base, idle, ten_times = (
        sum(predict(found, net, computation=factor)) / len(found.recorded_s)
        for net, factor in ((network, 1.0), (network, 0.0), (star(3, bit_per_s=1e9), 1.0))
    )
    # The server's first answer waits for an update that no longer takes time, the workers' pushes for no computation.
    assert base - idle == pytest.approx((COMPUTE_US + UPDATE_US) * 1e-6, abs=UPDATE_US * 1e-6)
    assert ten_times < base / 2
    slow = predict(found, network, conditions=Conditions(slow=((0, 11.0),)))
    # Its computation, and its own bytes both ways: the other worker's pass meanwhile.
    assert min(slow) > 11 * COMPUTE_US * 1e-6 + 2 * sum(SIZES) * 8e-8 > base


def test_files_that_do_not_belong_together_are_refused(nodes, tmp_path):
    """A node that nobody recorded would be silent, and all others wait for it."""
    with pytest.raises(ArtefactError, match="server 0 sent messages, and no file of theirs"):
        of_dlc_files(nodes[:2])
    with pytest.raises(ArtefactError, match="is of node 0, as another file"):
        of_dlc_files([nodes[0], nodes[0]])
    with pytest.raises(UsageError, match="3 nodes, the network has 2"):
        predict(of_dlc_files(nodes), star(2, bit_per_s=1e8))


def test_a_policy_s_run_and_its_dlc_files_are_traffic(trace, tmp_path):
    """A run without a plan could not be sent again, nor one of which only DLC files are left."""
    planned = json.loads((trace / RUN_FILE).read_text())
    (trace / RUN_FILE).write_text(json.dumps(planned | {"plan": None}))
    own = files.read(trace.parent / "cluster.toml", Cluster)
    for command in (["trace", "convert", str(trace), str(tmp_path / "dlc"), "--format", "dlc"],):
        result = CliRunner().invoke(hocket, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    for paths, tolerance in (((trace,), 0.05), (sorted((tmp_path / "dlc").iterdir()), 0.1)):
        found = traffic_of(list(paths))
        again = predict(found, from_cluster(own, 2))
        assert sum(again) == pytest.approx(sum(found.recorded_s), rel=tolerance), paths


def test_simulate_takes_a_trace(nodes, cluster, tmp_path):
    """The verb would not know a trace from a plan."""
    argv = ["simulate", "trace", *map(str, nodes), "--cluster", str(tmp_path / "cluster.toml"), "--json"]
    fast, slow = (
        json.loads(CliRunner().invoke(hocket, [*argv, "--computation", each], catch_exceptions=False).stdout)
        for each in ("1", "3")
    )
    assert fast["recorded_median_s"] == slow["recorded_median_s"]
    assert slow["replayed_median_s"] - fast["replayed_median_s"] > COMPUTE_US * 1e-6
    assert "No such option" in CliRunner().invoke(hocket, [*argv, "--steps", "3"]).output


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_dlc_trace_is_sent_on_real_sockets(nodes, cluster, tmp_path):
    """The verb would end without having sent anything, or never."""
    said = completed(
        [HOCKET, "trace", "replay", *nodes, "--cluster", tmp_path / "cluster.toml", "--repeat", "2", "--json"]
    )
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert len(found["replayed_s"]) == 2 * (ITERATIONS - 1)
    # 600 kB of each of two workers to a server at 100 Mbit/s, and back, and computation: no iteration can be shorter.
    assert min(found["replayed_s"]) > 0.15
