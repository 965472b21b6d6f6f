"""Overheads drawn from the measured ones, against those of a captured job as an independent script has them."""

import json
import math
import tarfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hocket.cli.main import hocket
from hocket.tools.formats import dlc
from hocket.tools.replay.drawn import gaps_drawn, steps_drawn
from hocket.tools.replay.of_dlc import of_dlc_files
from hocket.tools.replay.predicted import predicted
from hocket.tools.replay.schedule import Schedule, Step
from hocket.tools.replay.workers import with_workers
from tests.analysis import independent

CAPTURED = Path(__file__).parents[1] / "analysis/captured/lenet5.tar.xz"
SERVER = 2
SEEDS = 20
CHANCE = 1e-6
"""Chance at which a right draw would fail a bound below; seeds are fixed, so that it fails always or never."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lenet5")
    with tarfile.open(CAPTURED) as archive:
        archive.extractall(folder, filter="data")
    return sorted(folder.glob("*.txt"))


def gaps_us(traffic, code):
    """The gaps of a kind of the server's messages, by key."""
    found = defaultdict(list)
    for message in traffic.messages:
        if message.kind and message.kind[0] == code and message.kind[2] == SERVER:
            found[message.kind[1]].append(message.gap_s * 1e6)
    return found


@pytest.mark.parametrize(
    ("code", "name"), [(dlc.PULL | dlc.SERVER, "search"), (dlc.SERVER, "update")], ids=["search", "update"]
)
def test_drawn_overheads_are_distributed_as_the_measured(files, code, name):
    """A simulation would have a server that is faster, steadier or slower than the measured one."""
    traffic = of_dlc_files(files)
    measured = gaps_us(traffic, code)
    drawn = defaultdict(list)
    for seed in range(SEEDS):
        for key, gaps in gaps_us(gaps_drawn(traffic, seed), code).items():
            drawn[key] += gaps
    (server,) = (path for path in files if path.name == "server0.txt")
    said = independent.keys(independent.records(server))
    assert sorted(drawn) == sorted(said)
    for key, gaps in drawn.items():
        assert set(gaps) <= set(measured[key])
        count = len(gaps)
        # How far a sample's distribution is from the one that it is drawn from (Dvoretzky, Kiefer, Wolfowitz; Massart).
        apart = math.sqrt(math.log(2 / CHANCE) / (2 * count))
        for value in measured[key]:
            share = np.mean(np.array(measured[key]) <= value + 1e-3)
            assert abs(np.mean(np.array(gaps) <= value + 1e-3) - share) <= apart
        error = np.std(measured[key]) / math.sqrt(count)
        assert abs(np.mean(gaps) - np.mean(measured[key])) <= 5 * error
        if name == "search":
            # An update's first answer is of the file's key; the second answer's gap has no part in the script's.
            found = said[key][name]
            assert abs(np.mean(gaps) - found["mean_us"]) <= 5 * error
            assert (
                found["least_us"] - 0.01
                <= min(gaps)
                <= np.median(gaps)
                <= max(gaps)
                <= found["longest_us"] + 0.01
            )
            below = np.mean(np.array(gaps) <= found["median_us"] + 0.01)
            assert abs(below - np.mean(np.array(measured[key]) <= found["median_us"] + 0.01)) <= apart


def test_a_seed_is_a_draw_and_what_is_alone_stays(files):
    """A simulation could not be repeated, or two seeds would be one."""
    traffic = with_workers(of_dlc_files(files), 4)
    assert gaps_drawn(traffic, 1) == gaps_drawn(traffic, 1) != gaps_drawn(traffic, 2)
    kept = [
        (before.gap_s, after.gap_s)
        for before, after in zip(traffic.messages, gaps_drawn(traffic, 1).messages, strict=True)
        if not before.kind
    ]
    assert kept
    assert all(before == after for before, after in kept)
    # Copies of a worker are no longer slow at the same time.
    copies = [
        [each.gap_s for each in gaps_drawn(traffic, 1).messages if each.source == worker and each.kind]
        for worker in (0, 2)
    ]
    assert len(copies[0]) == len(copies[1])
    assert copies[0] != copies[1]


def test_drawing_among_equal_gaps_changes_nothing(nodes, cluster):
    """Something else than the gaps would be drawn."""
    repeated, drawn = (predicted(nodes, cluster, drawn=each) for each in (False, True))
    assert drawn.replayed_s == pytest.approx(repeated.replayed_s, rel=1e-6)


def test_steps_of_a_plan_are_drawn_whole():
    """Launches of one step would come with the computation of another."""
    steps = tuple(Step(launches=((0, at), (1, at + 0.5)), tail_s=at, step_s=2 * at) for at in (1.0, 2.0, 3.0))
    recorded = Schedule(plan=None, hosts=("a", "b"), ranks=(steps, steps[:1] * 3))
    found = steps_drawn(recorded, 4, seed=5)
    assert len(found.ranks) == 4
    for rank, own in enumerate(found.ranks):
        assert len(own) == 3
        assert set(own) <= set(recorded.ranks[rank % 2])
    assert found == steps_drawn(recorded, 4, seed=5)
    assert len({steps_drawn(recorded, 4, seed=each).ranks[0] for each in range(20)}) > 1


def test_the_verb_draws_by_the_seed(files, cluster, tmp_path):
    """`--draw` would be ignored, or differ from call to call."""
    argv = ["simulate", "trace", *map(str, files), "--cluster", str(tmp_path / "cluster.toml"), "--json"]

    def steps(*more):
        done = CliRunner().invoke(hocket, [*argv, *more], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["replayed_s"]

    assert steps("--draw", "--seed", "3") == steps("--draw", "--seed", "3") != steps("--draw", "--seed", "4")
    assert steps("--seed", "3") == steps("--seed", "4") != steps("--draw", "--seed", "3")
