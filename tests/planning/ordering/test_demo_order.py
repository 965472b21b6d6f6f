"""Orders of clusters written by hand, which have racks and rates and no matrix."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts.network import GOODPUT
from hocket.cli.order import command
from hocket.planning.ordering.cluster import of_cluster
from hocket.planning.ordering.solve import Algorithm, Request, cost_s, solve
from hocket.tools.testbed import clusters

CLUSTER = Path(clusters.__file__).parent / "two-racks.toml"


def test_the_demos_ring_crosses_its_trunk_once() -> None:
    """Broken: hosts listed in turn would stay so, since every pair of them is as fast as any other between racks."""
    result = CliRunner().invoke(
        command, ["--cluster", str(CLUSTER), "--algorithm", "ring", "--sizes", "12MB", "--json"]
    )
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    # Three quarters of the bytes, there and back, over 100 Mbit/s; in turn two flows each way share them.
    assert said["cost_s"] == pytest.approx(1.5 * 12e6 * 8 / (1e8 * GOODPUT))
    assert said["given_s"] == pytest.approx(2 * said["cost_s"])
    assert said["proven"] is True
    assert {host % 2 for host in said["order"][:2]} in ({0}, {1})


def test_a_probed_cluster_counts_its_trunks_beside_its_matrices() -> None:
    """Broken: the rates of single pairs, which a probe measures alone, would hide what pairs take from one another."""
    cluster = clusters.example_cluster("two-racks")
    racks = [host.rack for host in cluster.hosts]
    probed = msgspec.structs.replace(
        cluster,
        latency_s=tuple(tuple(5e-5 * (a != b) for b in range(4)) for a in range(4)),
        bandwidth_bit_per_s=tuple(tuple(9e8 if a == b else 9e7 for b in racks) for a in racks),
    )
    found = solve(of_cluster(probed), Request(algorithm="ring", size_bytes=12e6))
    assert found.given_s == pytest.approx(2 * 1.5 * 12e6 * 8 / 1e8)
    assert found.cost_s < 0.6 * found.given_s


@pytest.mark.parametrize("algorithm", ["bcube", "halving_doubling"])
def test_rounds_begin_as_those_who_run_them_do(algorithm: Algorithm) -> None:
    """Broken: BCube, which Hocket alone runs, would be ordered for partners that it does not have."""
    matrix = of_cluster(clusters.example_cluster("two-racks"))
    order = (0, 2, 1, 3)
    default, near, far = (
        cost_s(matrix, Request(algorithm=algorithm, base=2, size_bytes=1e6, far_first=first), order)
        for first in (None, False, True)
    )
    assert near != pytest.approx(far)
    assert default == (far if algorithm == "bcube" else near)
