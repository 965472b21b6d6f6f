"""Hosts that train nothing, shown by `hocket plan` as owners of parts: where that is faster, and never chosen."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import Plan
from hocket.cli.plan import command
from tests.planning.test_delays import profile

WORLD = 4


def planned(folder: Path, hosts: list[tuple[str, int]], *arguments: str) -> Plan:
    cluster = Cluster(
        hosts=tuple(Host(name=name, slots=slots, bandwidth_bit_per_s=2e8) for name, slots in hosts)
    )
    files.write(folder / "cluster.toml", cluster)
    files.write(folder / "profile.json", profile(0.1, (1_000_000,) * 4))
    given = ["--cluster", str(folder / "cluster.toml"), "--profile", str(folder / "profile.json"), "--json"]
    result = CliRunner().invoke(command, [*given, "-n", str(WORLD), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout, type=Plan)


def test_idle_hosts_are_shown_as_owners(tmp_path: Path) -> None:
    """Broken: nobody would know that hosts beside the training would make it faster; or they would be used unasked."""
    six = [(name, 1) for name in "abcdef"]
    plan = planned(tmp_path, six)
    assert plan.world == WORLD
    [shown] = [each for each in plan.evidence.candidates if "2 helpers" in each.label]
    assert shown.simulated_step_s is not None
    assert shown.simulated_step_s <= 0.95 * plan.predicted_step_s
    assert "`--helpers 2`" in plan.reason
    taken = planned(tmp_path, six, "--helpers", "2")
    assert taken.world == 6
    assert taken.predicted_step_s == pytest.approx(shown.predicted_step_s)


@pytest.mark.parametrize("hosts", [[(name, 1) for name in "abcd"], [("a", 1), ("b", 1), ("c", 1), ("d", 3)]])
def test_nobody_is_asked_for_hosts_that_there_are_not(hosts: list[tuple[str, int]], tmp_path: Path) -> None:
    """Broken: slots of the same hosts, whose links are full, would be sold as help."""
    assert not any("helpers" in each.label for each in planned(tmp_path, hosts).evidence.candidates)
