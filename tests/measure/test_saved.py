"""Probes that were interrupted: what is kept, what is read again, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hocket.artefacts.cluster import Cluster
from hocket.cli.probe import command
from hocket.errors import PeerError, UsageError
from hocket.start.processes import ProcessSpec
from hocket.tools.probe.hosts import AGENT, probe_hosts
from hocket.tools.probe.network import probe
from hocket.tools.probe.options import ProbeOptions
from hocket.tools.probe.saved import Saved, Tool, beside
from hocket.tools.probe.steps import Durations, Step
from tests.measure.room import Room, Seat

pytestmark = pytest.mark.hosts

BRIEF = Durations(window_s=0.01, transfer_s=0.05, crowded_s=0.05)
OPTIONS = ProbeOptions(limit_bit_per_s=1e10, pair_s=0.01)
HOSTS = ("a", "b")
STEP = Step(0, "latencies", [(0, 1, [1e-4, 64, 0, 0, 0.01])])


def take_part(seat: Seat, kept: list[Step], stop_at: int | None) -> Cluster:
    def keep(step: Step) -> None:
        if len(kept) == stop_at:
            raise InterruptedError
        kept.append(step)

    return probe(
        seat,
        name=f"host{seat.rank}",
        address=f"127.0.0.{seat.rank + 1}",
        options=OPTIONS,
        durations=BRIEF,
        saved=list(kept) if stop_at is None else (),
        keep=keep if seat.rank == 0 else None,
    )


@pytest.mark.parametrize("done", [1, 4, 7])
def test_a_probe_goes_on_where_it_was(done: int) -> None:
    """Broken: hours of measuring would be lost to a closed lid, or measured again."""
    kept: list[Step] = []
    with pytest.raises(InterruptedError):
        Room(4).run(lambda seat: take_part(seat, kept, done))
    first = list(kept)
    assert len(first) == done
    clusters = Room(4).run(lambda seat: take_part(seat, kept, None))
    assert all(cluster == clusters[0] for cluster in clusters)
    assert kept[:done] == first
    assert [step.number for step in kept] == list(range(len(kept)))
    for step in first:
        if step.what == "latencies":
            for a, b, numbers in step.found:
                assert clusters[0].latency_s[a][b] == pytest.approx(numbers[0] / 2, abs=1e-7)


def test_steps_are_read_again_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    """Broken: a probe that was killed while it wrote could not go on."""
    path = tmp_path / "cluster.toml.unfinished"
    with Saved(path, HOSTS, OPTIONS) as saved:
        saved.add(STEP)
    path.write_bytes(path.read_bytes() + b'[1,"trains",[[0,')
    with Saved(path, HOSTS, OPTIONS) as saved:
        assert saved.steps == [STEP]
        saved.add(Step(1, "trains", []))
    with Saved(path, HOSTS, OPTIONS) as saved:
        assert [step.what for step in saved.steps] == ["latencies", "trains"]
        saved.finished()
    assert not path.exists()


@pytest.mark.parametrize(
    ("hosts", "options", "said"),
    [
        (("a", "c"), OPTIONS, "other hosts: the list is now without b and with c"),
        (("b", "a"), OPTIONS, "in another order"),
        (HOSTS, ProbeOptions(rates="tcp"), "other options"),
    ],
)
def test_steps_of_another_probe_are_refused(
    tmp_path: Path, hosts: tuple[str, ...], options: ProbeOptions, said: str
) -> None:
    """Broken: hosts would be given one another's latencies."""
    path = tmp_path / "x"
    with Saved(path, HOSTS, OPTIONS) as saved:
        saved.add(STEP)
    with pytest.raises(UsageError, match=said) as refused:
        Saved(path, hosts, options)
    assert "hint: remove" in str(refused.value)


@pytest.mark.parametrize("tools", [("agents", "fping"), ("fping", "agents")])
def test_steps_of_another_tool_are_refused(tmp_path: Path, tools: tuple[Tool, Tool]) -> None:
    """Broken: pings would be read as trains."""
    with Saved(tmp_path / "x", HOSTS, OPTIONS, tool=tools[0]) as saved:
        saved.add(STEP)
    with pytest.raises(UsageError, match="other options"):
        Saved(tmp_path / "x", HOSTS, OPTIONS, tool=tools[1])


@pytest.mark.parametrize("text", ["hello\n", "{}\n", '{"version":1}\n', "[1]\n", "\0\xff\n"])
def test_files_that_are_something_else_are_refused(tmp_path: Path, text: str) -> None:
    """Broken: a file of that name would be overwritten, or end in a traceback."""
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(UsageError, match="not of an interrupted probe"):
        Saved(path, HOSTS, OPTIONS)
    assert path.read_text() == text


def test_agents_take_finished_steps_from_the_launcher() -> None:
    """Broken: what was saved would be measured again over ssh all the same."""
    hosts = [ProcessSpec(argv=AGENT, host=name) for name in ("left", "right")]
    kept: list[Step] = []
    probe_hosts(hosts, options=OPTIONS, keep=kept.append)
    odd = Step(0, "latencies", [(0, 1, [0.5, 64, 0, 0, 0.01])])
    again: list[Step] = []
    cluster = probe_hosts(hosts, options=OPTIONS, saved=[odd, *kept[1:2]], keep=again.append)
    assert cluster.latency_s[0][1] == 0.25
    assert [step.number for step in again] == [step.number for step in kept[2:]]


def test_the_command_goes_on_and_cleans_up(tmp_path: Path) -> None:
    """Broken: `hocket probe -o` would leave its notes behind, or take those of another list of hosts."""
    script = tmp_path / "ssh"
    script.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    script.chmod(0o755)
    (tmp_path / "hosts").write_text("localhost\n")
    out = tmp_path / "cluster.toml"
    call = ["--hosts", str(tmp_path / "hosts"), "--ssh", str(script), "-o", str(out), "--json"]
    with Saved(beside(out), ["elsewhere"], ProbeOptions()) as saved:
        saved.add(STEP)
    refused = CliRunner().invoke(command, call)
    assert isinstance(refused.exception, UsageError)
    assert "other hosts" in str(refused.exception)
    beside(out).unlink()
    result = CliRunner().invoke(command, call)
    assert result.exit_code == 0, (result.output, result.exception)
    assert out.exists()
    assert not beside(out).exists()


def test_an_interruption_leaves_what_was_measured(tmp_path: Path) -> None:
    """Broken: a host that fails late would cost all rounds before it."""
    (tmp_path / "hosts").write_text("nowhere\n")
    out = tmp_path / "cluster.toml"
    call = ["--hosts", str(tmp_path / "hosts"), "--ssh", "false", "--store", "127.0.0.1", "-o", str(out)]
    with Saved(beside(out), ["nowhere"], ProbeOptions()) as saved:
        saved.add(STEP)
    result = CliRunner().invoke(command, call)
    assert isinstance(result.exception, PeerError)
    assert "--fping" in str(result.exception)
    with Saved(beside(out), ["nowhere"], ProbeOptions()) as saved:
        assert saved.steps == [STEP]
