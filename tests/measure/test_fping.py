"""Latencies by fping, where no agent runs: its output, its absence, and itself where it is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.cli.probe import command
from hocket.errors import PeerError
from hocket.tools.probe.fping import probe_by_fping, round_trips
from hocket.tools.probe.options import ProbeOptions
from hocket.tools.probe.saved import Saved, beside

pytestmark = pytest.mark.hosts

RECORDED = """ICMP Host Unreachable from 10.77.0.1 for ICMP Echo sent to 10.77.0.9
10.77.0.2  : 0.134 0.092 - 0.088 0.091
10.77.0.22 : 1.5 1.4 1.6
node7.rack : - - -
"""
"""As fping 5.1 prints it, on standard error."""


def shell(tmp_path: Path, text: str) -> str:
    """What stands in for ssh: `text` as a script, called with the host and the command."""
    script = tmp_path / "ssh"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.77.0.2", [0.134e-3, 0.092e-3, None, 0.088e-3, 0.091e-3]),
        ("10.77.0.22", [1.5e-3, 1.4e-3, 1.6e-3]),
        ("node7.rack", [None, None, None]),
        ("10.77.0.9", []),
        ("10.77.0", []),
    ],
)
def test_what_fping_prints_is_read(host: str, expected: list[float | None]) -> None:
    """Broken: latencies of one host would be taken for another's, or lost pings for fast ones."""
    assert round_trips(RECORDED, host) == [each if each is None else pytest.approx(each) for each in expected]


@given(st.text(max_size=200))
def test_any_text_is_read_without_harm(text: str) -> None:
    """Broken: a login banner could end a probe with a traceback, or become a latency."""
    for each in round_trips(f"h : {text}", "h"):
        assert each is None or 0 <= each < 1e6


def test_a_host_without_fping_is_named(tmp_path: Path) -> None:
    """Broken: nobody would know what to install, and where."""
    with pytest.raises(PeerError, match="no fping on a\nhint: install it there"):
        probe_by_fping(["a", "b"], ssh=shell(tmp_path, "exit 127"), link_bit_per_s=1e9)


def test_hosts_that_are_not_reached_are_named(tmp_path: Path) -> None:
    """Broken: a firewall, a wrong password and a host that is down would look the same."""
    lost = shell(tmp_path, "echo 'b : - - -' >&2; exit 1")
    with pytest.raises(PeerError, match="from a to b by fping: none of its pings came back"):
        probe_by_fping(["a", "b"], ssh=lost, link_bit_per_s=1e9)
    refused = shell(tmp_path, "echo 'Permission denied (publickey).' >&2; exit 255")
    with pytest.raises(PeerError, match="Permission denied"):
        probe_by_fping(["a", "b"], ssh=refused, link_bit_per_s=1e9)
    with pytest.raises(PeerError, match="cannot be started"):
        probe_by_fping(["a", "b"], ssh=str(tmp_path / "nothing"), link_bit_per_s=1e9)


def test_pings_become_a_cluster_and_go_on_after_an_interruption(tmp_path: Path) -> None:
    """Broken: the fallback's file could not be ordered by, or its rounds would be measured again."""
    # Latency by the last letters: hosts ax and bx are near each other, as are cy and dy. Each call outlasts the budget of a pair.
    ssh = shell(
        tmp_path,
        f'sleep 0.01; echo "$1 $2" >> {tmp_path}/calls\n'
        'to="${2##* }"\n'
        'from="${1%?}"; till="${to%?}"\n'
        'case "${1#"$from"}${to#"$till"}" in xx|yy) echo "$to : 0.10 0.11 0.10" >&2;; *) echo "$to : 1.0 - 1.0" >&2;; esac',
    )
    names = ["me@ax", "cy", "bx", "dy"]
    (tmp_path / "hosts").write_text("me@ax slots=2\ncy\nbx\ndy\n")
    out = tmp_path / "cluster.toml"
    call = [
        "--hosts",
        str(tmp_path / "hosts"),
        "--ssh",
        ssh,
        "-o",
        str(out),
        "--fping",
        "--link",
        "1e9",
        "--pair-budget",
        "0.001",
    ]
    result = CliRunner().invoke(command, call)
    assert result.exit_code == 0, (result.output, result.exception)
    cluster = files.read(out, Cluster)
    assert [(host.name, host.slots) for host in cluster.hosts] == [("ax", 2), ("cy", 1), ("bx", 1), ("dy", 1)]
    assert [host.rack for host in cluster.hosts] == ["rack0", "rack1", "rack0", "rack1"]
    assert cluster.latency_s[0][2] == 0.05e-3
    assert cluster.latency_s[0][1] == cluster.latency_s[1][0] == 0.5e-3
    assert "of 18 pings" in result.stderr
    # Three pings tell nothing, and their time was over.
    assert "the latency of 6 of 6 measurements is not known to 2%" in result.stderr
    assert cluster.latency_precision[0][1] == cluster.latency_precision[1][0] == 1
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == len(names) * (len(names) - 1) // 2
    assert not beside(out).exists()


def test_rounds_of_fping_are_not_measured_twice(tmp_path: Path) -> None:
    """Broken: an interruption would cost all pings before it."""
    ssh = shell(tmp_path, f'echo x >> {tmp_path}/calls; echo "${{2##* }} : 0.1 0.1" >&2')
    with Saved(tmp_path / "s", ["a", "b", "c"], ProbeOptions(), tool="fping") as saved:
        probe_by_fping(["a", "b", "c"], ssh=ssh, link_bit_per_s=1e9, pair_s=1e-6, saved=saved)
    with Saved(tmp_path / "s", ["a", "b", "c"], ProbeOptions(), tool="fping") as saved:
        probe_by_fping(["a", "b", "c"], ssh="false", link_bit_per_s=1e9, pair_s=1e-6, saved=saved)
    assert (tmp_path / "calls").read_text().count("x") == 3


@pytest.mark.parametrize(
    "options", [["--fping"], ["--link", "1e9"], ["--fping", "--link", "1e9"], ["--fping", "--link", "0"]]
)
def test_options_that_do_not_go_together_are_refused(options: list[str]) -> None:
    """Broken: a rate that nobody measured would be made up."""
    assert CliRunner().invoke(command, options).exit_code == 2


@pytest.mark.timing
def test_fping_itself_measures_this_machine(tmp_path: Path) -> None:
    """Broken: the output of the fping that people have would not be read."""
    if shutil.which("fping") is None:
        pytest.skip("fping is not installed")
    ssh = shell(tmp_path, 'shift; exec sh -c "$*"')
    cluster = probe_by_fping(["127.0.0.1", "127.0.0.2", "127.0.0.3"], ssh=ssh, link_bit_per_s=1e9, pair_s=0.1)
    assert all(0 < cluster.latency_s[a][b] < 0.1 for a in range(3) for b in range(3) if a != b)
