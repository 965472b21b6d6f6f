"""`hocket probe` as a person calls it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.cli.probe import command
from hocket.errors import Error, PeerError, UsageError
from hocket.start.output import LINE_BYTES_MAX, Channel, Screen
from hocket.start.processes import ProcessSpec
from hocket.tools.probe.agent import Event, lines_of
from hocket.tools.probe.hosts import AGENT, _Events, probe_hosts

pytestmark = pytest.mark.hosts


def test_this_machine_is_written_with_its_slots(tmp_path: Path) -> None:
    """Broken: a job on one machine could not be planned from a probe's file."""
    result = CliRunner().invoke(command, ["-n", "3", "-o", str(tmp_path / "cluster.toml"), "--json"])
    assert result.exit_code == 0, result.output
    written = files.read(tmp_path / "cluster.toml", Cluster)
    assert msgspec.json.decode(result.stdout, type=Cluster) == written
    assert [host.slots for host in written.hosts] == [3]
    assert written.measured_at is not None


def test_ranks_of_two_places_measure_each_other() -> None:
    """Broken: agents started by the launcher would not find each other or not report."""
    seen: list[str] = []
    hosts = [ProcessSpec(argv=AGENT, host=name) for name in ("left", "right", "left")]
    cluster = probe_hosts(hosts, progress=lambda _done, _total, what: seen.append(what))
    assert [(host.name, host.slots) for host in cluster.hosts] == [("left", 2), ("right", 1)]
    assert seen[0] == "pairs, round 1 of 1"
    assert seen[-1] == "done"


def test_a_host_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    """Broken: a host that is down would end in a hang or a riddle."""
    (tmp_path / "hosts").write_text("nowhere\n")
    result = CliRunner().invoke(
        command, ["--hosts", str(tmp_path / "hosts"), "--ssh", "false", "--store", "127.0.0.1"]
    )
    assert isinstance(result.exception, PeerError)
    assert (result.exception.rank, result.exception.host) == (0, "nowhere")


@pytest.mark.parametrize("text", ["", "# none\n", "a\na\n"])
def test_hosts_files_without_sense_are_refused(tmp_path: Path, text: str) -> None:
    """Broken: an empty or doubled list would probe nothing, or a host against itself."""
    (tmp_path / "hosts").write_text(text)
    result = CliRunner().invoke(command, ["--hosts", str(tmp_path / "hosts")])
    assert isinstance(result.exception, UsageError)


def test_a_job_too_large_for_its_hosts_is_refused(tmp_path: Path) -> None:
    """Broken: ranks without a host would be planned."""
    (tmp_path / "hosts").write_text("a slots=2\n")
    result = CliRunner().invoke(command, ["--hosts", str(tmp_path / "hosts"), "-n", "3"])
    assert isinstance(result.exception, Error)
    assert "3 ranks" in str(result.exception)


def test_hosts_that_are_down_are_left_out_on_request(tmp_path: Path) -> None:
    """Broken: one machine that is down would keep the others from being measured."""
    script = tmp_path / "ssh"
    script.write_text('#!/bin/sh\n[ "$1" = localhost ] || exit 255\nshift\nexec sh -c "$*"\n')
    script.chmod(0o755)
    (tmp_path / "hosts").write_text("gone\nlocalhost slots=2\naway\n")
    call = ["--hosts", str(tmp_path / "hosts"), "--ssh", str(script), "--json", "--store", "127.0.0.1"]
    assert isinstance(CliRunner().invoke(command, call).exception, PeerError)
    result = CliRunner().invoke(command, [*call, "--skip-unreachable"])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "left out, since they are not reached: gone, away" in result.stderr
    cluster = msgspec.json.decode(result.stdout, type=Cluster)
    assert [(host.name, host.slots) for host in cluster.hosts] == [("localhost", 2)]
    (tmp_path / "hosts").write_text("gone\naway\n")
    refused = CliRunner().invoke(command, [*call, "--skip-unreachable"])
    assert isinstance(refused.exception, UsageError)
    assert "none of the hosts" in str(refused.exception)


def test_results_of_many_hosts_come_back_whole() -> None:
    """Broken: from some fifty hosts on, a cluster would be longer than the line that brings it."""
    hosts = 90
    cluster = Cluster(
        hosts=tuple(Host(name=f"host{at}", bandwidth_bit_per_s=1e9) for at in range(hosts)),
        latency_s=tuple(tuple(1.2345e-5 * (a + b) for b in range(hosts)) for a in range(hosts)),
    )
    lines = lines_of(Event(done=1, total=1, what="done", cluster=cluster))
    assert max(map(len, lines.splitlines())) < LINE_BYTES_MAX
    events = _Events(None, None, None)
    channel = Channel(Screen(events), b"")
    for at in range(0, len(lines), 1000):
        channel.feed(b"noise\n" * (at == 0) + lines[at : at + 1000])
    channel.end()
    assert events.cluster == cluster
