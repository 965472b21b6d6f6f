"""Sweeps on Ray: bit for bit what one process finds, and a lost node costs only its own tasks."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial

import pytest
import ray

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import RendezvousError, SimulationError
from hocket.planning.search import neutral_profile
from hocket.ray.tasks import RETRIES_MAX, RayTasks
from hocket.tools.simulation.sweep import STRATEGIES, cases, sweep
from hocket.tools.simulation.tasks import Here

CLUSTER = Cluster(
    hosts=tuple(Host(name=f"h{at}", rack=f"r{at % 2}", bandwidth_bit_per_s=1e9) for at in range(4))
)
CASES = cases([1e8 * at for at in range(1, 21)], [2, 3, 4, 6, 8], ["ring", "ring-f16", "two-level", "direct"])
PATIENCE_S = 30


def noted(directory, item):
    """A task that takes a while, and says where it has run."""
    time.sleep(0.1)
    node = ray.get_runtime_context().get_node_id()
    with open(f"{directory}/{node}", "a") as file:  # noqa: PTH123
        file.write(f"{item}\n")
    return item * item


def runs(directory):
    """How often each item has run, by node."""
    return {each.name: Counter(map(int, each.read_text().split())) for each in directory.iterdir()}


def refuses(item):
    raise SimulationError(f"no end of {item}", ranks=[item], at_s=1.5)


def ends(item):
    os._exit(3)


def test_a_sweep_of_400_on_two_nodes_is_one_processs(nodes):
    """A table would depend on where it was made."""
    assert len(CASES) == 400
    done = []
    on_ray = sweep(
        CLUSTER, neutral_profile(), CASES, tasks=RayTasks(PATIENCE_S), on_done=lambda: done.append(1)
    )
    here = sweep(CLUSTER, neutral_profile(), CASES, tasks=Here())
    assert on_ray == here
    assert [each.step_s.hex() for each in on_ray] == [each.step_s.hex() for each in here]
    assert len(done) == 400


def test_a_killed_node_costs_only_its_tasks(nodes, tmp_path):
    """A sweep of hours would begin again."""
    items = list(range(120))
    victims = []

    def kill():
        while sum(map(sum, (each.values() for each in runs(tmp_path).values()))) < 40:
            time.sleep(0.05)
        victims.append(next(iter(runs(tmp_path))))
        nodes.kill(victims[0])

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    results = RayTasks(PATIENCE_S).map(partial(noted, tmp_path), items)
    killer.join()
    assert results == [item * item for item in items]
    ran = runs(tmp_path)
    total = sum(ran.values(), Counter())
    assert set(total) == set(items)
    # Of its two CPUs: what it was doing, and what it had just done and not handed over.
    twice = [item for item, count in total.items() if count > 1]
    assert len(twice) <= 4, twice
    assert set(twice) <= set(ran[victims[0]])
    assert len(ran[victims[0]]) > 10


def test_a_sweep_goes_on_without_a_node(nodes):
    """The simulations of a lost node would be missing, or others."""
    began = threading.Event()
    victim = next(each["NodeID"] for each in ray.nodes() if each["Alive"] and each["Resources"].get("CPU"))

    def kill():
        began.wait()
        nodes.kill(victim)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    on_ray = sweep(CLUSTER, neutral_profile(), CASES, tasks=RayTasks(PATIENCE_S), on_done=began.set)
    killer.join()
    assert on_ray == sweep(CLUSTER, neutral_profile(), CASES, tasks=Here())


def test_errors_of_calls_are_as_they_were_here(nodes):
    """`hocket simulate` would show a traceback of Ray's."""
    with pytest.raises(SimulationError, match="no end of 7") as caught:
        RayTasks(PATIENCE_S).map(refuses, [7])
    assert caught.value.ranks == (7,)
    assert caught.value.at_s == 1.5


def test_a_call_that_ends_its_process_is_given_up(nodes):
    """It would be made again for ever."""
    with pytest.raises(RendezvousError, match=f"{RETRIES_MAX + 1} times"):
        RayTasks(PATIENCE_S).map(ends, [1])


def says(*argv):
    """(exit code, standard output, standard error) of the command line."""
    source = "from hocket.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", source, *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize(
    "verb",
    [
        [
            "simulate",
            "sweep",
            "--bandwidth",
            "100Mbit,1Gbit",
            "-n",
            "2,4",
            "--strategy",
            ",".join(STRATEGIES),
        ],
        ["plan"],
    ],
)
def test_the_command_line_says_the_same_on_ray(nodes, tmp_path, verb):
    """`--ray` would be another simulator, or `hocket plan` would choose another plan."""
    files.write(tmp_path / "cluster.toml", CLUSTER)
    argv = [*verb, "--cluster", tmp_path / "cluster.toml", "--json"]
    alone, on_ray = says(*argv), says(*argv, "--ray", nodes.address)
    assert alone[0] == on_ray[0] == 0, on_ray
    assert json.loads(alone[1]) == json.loads(on_ray[1])


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["simulate", "sweep", "--ray", "127.0.0.1:9"], "error: there is no Ray cluster at `127.0.0.1:9`"),
        (["plan", "--builder", "ring", "--ray", "auto"], "--ray does not apply"),
    ],
)
def test_what_ray_cannot_do_is_refused(tmp_path, argv, expected):
    """A user would see a traceback of Ray's, or wait for a cluster that is not there."""
    files.write(tmp_path / "cluster.toml", CLUSTER)
    code, _, said = says(*argv, "--cluster", tmp_path / "cluster.toml")
    assert code == 2, said
    assert said.startswith("error: ")
    assert expected in said
    assert "Traceback" not in said
