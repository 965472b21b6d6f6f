"""`hocket tune` as a person calls it, with real ranks."""

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.tuning import NetworkShape, Point, Timing, Tuning
from hocket.cli.tune import command
from hocket.errors import ArtefactError, PeerError, UsageError
from hocket.policy.algorithms import fitting
from hocket.policy.topology import Topology
from hocket.start.processes import ProcessSpec
from hocket.tools.tuning.algorithm_times import Task
from hocket.tools.tuning.regret import regrets
from hocket.tools.tuning.tune import AGENT, Wanted, empty, tune, with_point

pytestmark = pytest.mark.hosts

HERE = [ProcessSpec(argv=AGENT, host="here")] * 2
ONE_HOST = Topology.even(world=2, hosts_per_rack=1)


def call(*arguments):
    result = CliRunner().invoke(command, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def names(ladder):
    return [[timing.algorithm for timing in point.timings] for point in ladder.points]


def test_every_algorithm_is_measured_and_kept(tmp_path):
    """What `auto` goes by would lack algorithms, sizes or collectives."""
    path = tmp_path / "tuning.json"
    asked = ("-n", "2", "--sizes", "64,64KB", "--rounds", "2", "-o", str(path))
    result = call(*asked, "--collective", "all_reduce", "--json")
    written = files.read(path, Tuning)
    assert msgspec.json.decode(result.stdout, type=Tuning) == written
    engine, thread, registered = written.ladders
    assert engine.shape == thread.shape == registered.shape == NetworkShape(ranks=2)
    assert (thread.runner, registered.runner) == ("thread", "thread_registered")
    assert [point.size_bytes for point in engine.points] == [64, 64_000]
    assert names(engine) == [list(fitting("all_reduce", [0, 1], ONE_HOST))] * 2
    assert names(thread) == names(registered) == [["flat", "parts"]] * 2
    for timing in engine.points[0].timings:
        assert 0 < timing.p10_s <= timing.median_s <= timing.p90_s

    call(*asked, "--collective", "broadcast", "--json")
    later = files.read(path, Tuning)
    assert later.ladders[:3] == written.ladders, "what was there is measured once"
    assert later.ladders[3].collective == "broadcast"

    checked = call(*asked[:-2], "--collective", "broadcast", "--check", "--tuning", str(path), "--json")
    found = msgspec.json.decode(checked.stdout)
    assert [each["size_bytes"] for each in found] == [64, 64_000]
    assert all(each["best_s"] <= each["chosen_s"] <= each["worst_s"] for each in found)
    shown = call("-n", "2", "--sizes", "64", "--rounds", "1", "--collective", "reduce")
    assert "reduce, 2 ranks on 1 host" in shown.stdout


def test_what_is_there_is_not_measured_again():
    """Minutes of a measurement that was broken off would be lost."""
    wanted = Wanted.of(["here"] * 2, None, ["broadcast", "reduce"], [64, 128])
    point = Point(size_bytes=64, timings=(Timing(algorithm="ring", median_s=1, p10_s=1, p90_s=1, rounds=1),))
    task = Task(collective="broadcast", runner="engine", size_bytes=64)
    known = with_point(empty(), task, NetworkShape(ranks=2), point)
    left = [(each.collective, each.size_bytes) for each in wanted.tasks(known)]
    assert left == [("broadcast", 128), ("reduce", 64), ("reduce", 128)]
    assert len(wanted.tasks(with_point(empty(), task, NetworkShape(ranks=3), point))) == 4, (
        "of another network"
    )
    assert wanted.removed_from(known).ladders == ()
    kept = []
    done = tune(HERE, wanted, known=known, rounds=1, keep=kept.append)
    assert [len(each.ladders) for each in kept] == [1, 2, 2]
    assert done == kept[-1]
    assert done.ladders[0].points[0] == point
    assert tune(HERE, wanted, known=done, rounds=1) == done


def test_ranks_of_several_hosts_measure_what_fits_them():
    """Algorithms of one host would be offered between hosts, or two levels be left out."""
    hosts = ["a", "b", "a", "b"]
    wanted = Wanted.of(hosts, None, ["all_reduce"], [64])
    ranks = [ProcessSpec(argv=AGENT, host=host) for host in hosts]
    (ladder,) = tune(ranks, wanted, known=empty(), rounds=1).ladders
    assert (ladder.shape.ranks, ladder.shape.hosts) == (4, 2)
    assert names(ladder) == [["ring", "direct", "two_level.host", "halving_doubling", "double_binary_tree"]]


def test_a_rank_that_fails_is_named():
    """A measurement that cannot be made would end in a hang or a riddle."""
    wanted = Wanted.of(["here"] * 2, None, ["reduce"], [64])
    with pytest.raises(PeerError, match=r"the measurement failed: .* exit code 3") as failed:
        tune(
            [HERE[0], ProcessSpec(argv=["sh", "-c", "exit 3"], host="here")], wanted, known=empty(), rounds=1
        )
    assert (failed.value.rank, failed.value.host, failed.value.why) == (1, "here", "failed")


def test_regret_is_against_the_best_of_another_run():
    """The benchmark of `auto` would praise a choice that is slow."""

    def measured(**times_s):
        timings = tuple(
            Timing(algorithm=name, median_s=time_s, p10_s=time_s, p90_s=time_s, rounds=1)
            for name, time_s in times_s.items()
        )
        task = Task(collective="reduce", runner="engine", size_bytes=64)
        return with_point(empty(), task, NetworkShape(ranks=2), Point(size_bytes=64, timings=timings))

    (found,) = regrets(
        measured(ring=1.0, direct=2.0), measured(direct=2.0, ring=3.0, halving_doubling=8.0).ladders
    )
    assert (found.chosen, found.best, found.regret, found.worst_s) == ("ring", "direct", 0.5, 8.0)
    assert regrets(empty(), measured(ring=1.0).ladders) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--emulate",), "--emulate makes the network of --cluster"),
        (("--check", "-o", "x"), "--check writes no tuning"),
        (("--tuning", "x"), "--tuning is what --check judges"),
    ],
)
def test_options_that_contradict_each_other(arguments, why):
    """A mistake in the command would cost minutes of measuring something else."""
    with pytest.raises(UsageError, match=why):
        call(*arguments)


def test_a_file_of_another_schema_is_refused_before_measuring(tmp_path):
    """A plan given for a tuning would be overwritten."""
    path = tmp_path / "x.json"
    path.write_text('{"version": 2, "ladders": []}')
    with pytest.raises(ArtefactError, match=r"tuning file .* has version 2: this Hocket reads up to 1"):
        call("-o", str(path))
    path.write_text('{"version": 1, "world": 2}')
    with pytest.raises(ArtefactError, match="is not a tuning"):
        call("-o", str(path))
    assert path.read_text() == '{"version": 1, "world": 2}'
