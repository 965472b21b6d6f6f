"""Orders for Hocket's own programs, by their simulated step."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.network import restricted
from hocket.artefacts.plan import AllReduce, Plan
from hocket.cli.order import command
from hocket.errors import UsageError
from hocket.planning.buckets import buckets, plan_of
from hocket.tools.simulation import flow
from hocket.tools.simulation.networks import from_cluster
from hocket.tools.simulation.order import _at_once, solve_program


def cluster(racks: int, hosts: int, slots: int = 1) -> Cluster:
    """Hosts alternate between racks, whose trunks are slow."""
    place = [at % racks for at in range(hosts)]
    return Cluster(
        hosts=tuple(
            Host(name=f"h{at}", rack=f"r{rack}", bandwidth_bit_per_s=1e9, slots=slots)
            for at, rack in enumerate(place)
        ),
        racks=tuple(Rack(name=f"r{rack}", uplink_bit_per_s=1e8) for rack in range(racks)),
        latency_s=tuple(
            tuple(0.0 if a == b else 1e-4 if place[a] == place[b] else 1e-3 for b in range(hosts))
            for a in range(hosts)
        ),
    )


def plan(world: int, algorithm: str = "ring", sizes: tuple[int, ...] = ()) -> Plan:
    gradients = [[Gradient(f"w{at}", (200_000,), "f32")] for at in range(2)]
    made = buckets(gradients, AllReduce(algorithm=algorithm, sizes=sizes), range(world))
    return plan_of(made, world, label="")


def step_s(of: Plan, told: Cluster, order: tuple[int, ...]) -> float:
    network = from_cluster(restricted(told, order), of.world)
    return flow.predict(of, network, _at_once(of)).outcome.step_s


@pytest.mark.parametrize(("algorithm", "sizes"), [("ring", ()), ("two_level", (3, 2))])
def test_of_few_hosts_the_best_of_all_orders_is_found(algorithm: str, sizes: tuple[int, ...]) -> None:
    """Broken: a program would be given an order that is not the best for what it does."""
    told = cluster(2, 5)
    of = plan(5, algorithm, sizes)
    found = solve_program(of, told, evaluations=150, seed=3)
    best = min(step_s(of, told, order) for order in itertools.permutations(range(5)))
    assert found.cost_s == pytest.approx(best)
    assert found.cost_s == pytest.approx(step_s(of, told, found.order))
    assert found.given_s == pytest.approx(step_s(of, told, tuple(range(5))))
    assert found.cost_s < 0.9 * found.given_s


def test_an_order_is_never_worse_than_the_given_one_and_a_seed_is_an_order() -> None:
    """Broken: asking would make a job slower, or ranks would come to different orders."""
    told, of = cluster(2, 4), plan(4)
    best = solve_program(of, told, evaluations=60).order
    again = solve_program(of, restricted(told, best), evaluations=30)
    assert again.cost_s <= again.given_s
    assert solve_program(of, told, evaluations=60) == solve_program(of, told, evaluations=60)


def test_ranks_of_a_host_stay_together() -> None:
    """Broken: a host's ranks would be counted as hosts."""
    told, of = cluster(2, 4, slots=2), plan(8)
    found = solve_program(of, told, evaluations=40)
    assert sorted(found.order) == [0, 1, 2, 3]
    assert found.slots == (2, 2, 2, 2)
    assert found.cost_s < found.given_s


def test_plans_that_do_not_fit_are_refused() -> None:
    """Broken: a plan would be simulated on hosts that it was not made for."""
    with pytest.raises(UsageError, match="for 5 ranks, the cluster has 4 slots"):
        solve_program(plan(5), cluster(2, 4))
    uneven = msgspec.structs.replace(
        cluster(2, 3),
        hosts=tuple(msgspec.structs.replace(h, slots=1 + at % 2) for at, h in enumerate(cluster(2, 3).hosts)),
    )
    with pytest.raises(UsageError, match="different slots"):
        solve_program(plan(4), uneven)


def test_the_command_orders_for_a_plan(tmp_path: Path) -> None:
    """Broken: `hocket order --plan` would not be there, or ask for a program without links."""
    files.write(tmp_path / "c.toml", cluster(2, 4))
    files.write(tmp_path / "p.json", plan(4))
    call = [
        "--cluster",
        str(tmp_path / "c.toml"),
        "--plan",
        str(tmp_path / "p.json"),
        "--evaluations",
        "40",
    ]
    result = CliRunner().invoke(command, [*call, "--json"])
    assert result.exit_code == 0, result.output
    said = msgspec.json.decode(result.stdout)
    assert said["algorithm"] == "program"
    assert said["cost_s"] < said["given_s"]
    assert "simulated steps" in said["notes"][-1]
    shown = CliRunner().invoke(command, call)
    assert "step of the program" in shown.output
    assert "times faster than the given order" in shown.output
    (tmp_path / "m.csv").write_text("0,1\n1,0\n")
    refused = CliRunner().invoke(
        command, ["--matrix", str(tmp_path / "m.csv"), "--plan", str(tmp_path / "p.json")]
    )
    assert refused.exit_code == 2
