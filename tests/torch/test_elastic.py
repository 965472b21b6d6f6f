"""Elastic jobs: ranks are killed in real processes, and the others go on in the same step.

`make elastic CASES=60` kills at each edge of a step, and at random moments.
"""

from __future__ import annotations

import io
import itertools
import json
import signal
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hocket.artefacts.trace import read
from hocket.settings import Settings
from hocket.start.outcome import Outcome
from hocket.start.processes import SIGNALLED, ProcessSpec
from hocket.start.run import launch
from tests.support import drawn, warm

torch = pytest.importorskip("torch")

from tests.torch import elastic_loop_scripts as loops  # noqa: E402  # needs torch
from tests.torch import elastic_scripts as scripts  # noqa: E402

pytestmark = pytest.mark.members

SCRIPT = Path(scripts.__file__)
LOOP_SCRIPT = Path(loops.__file__)
FEW = 2
TIME_TO_LEAVE = range(5, 8)
"""Steps in which a rank that stays pauses: when the coordinator lets a leaver go is for it to say, and steps take milliseconds."""
CASES = drawn.cases(FEW)


def run(
    directory: Path,
    hosts: list[str],
    *victims: str,
    script: Path = SCRIPT,
    members_min: int = 1,
    heartbeat_s: float = 10.0,
    trace: str | None = None,
) -> tuple[Outcome, str]:
    """A job with a rank on each host; `victims` as the script has them."""
    out = io.BytesIO()
    outcome = launch(
        [ProcessSpec(argv=warm.command(script, str(directory), *victims), host=host) for host in hosts],
        settings=Settings(timeout_s=60, start_timeout_s=60, heartbeat_timeout_s=heartbeat_s, trace=trace),
        members_min=members_min,
        out=out,
        err=out,
    )
    return outcome, out.getvalue().decode()


def first_without(step: int, edge: str) -> set[int]:
    """The steps of which one is the first without a rank that dies there.

    Those who are left repeat a step that none of them knows to stand. A rank knows that they have left the barrier of the step
    before only by their sums of this one, and dies in a barrier that they may or may not leave.
    """
    if edge in ("entered", "done", "optimizer"):
        return {step, step + 1}
    return {step} if edge == "prepared" else {step - 1, step}


def check(
    directory: Path,
    world: int,
    lost: dict[int, set[int]],
    *,
    norms: bool = False,
    sends: list[int] | None = None,
) -> dict[int, int]:
    """All survivors have the bits of all others after each step, and what one process makes of the members that each step names.

    `lost`: by rank, the steps of which one may be the first without it. `sends`: by step, whose buffers all have before their
    forward. Returns which one it was.
    """
    survivors = sorted(set(range(world)) - lost.keys())
    members = [each["members"] for each in scripts.alike(directory, survivors)]
    since = {rank: sum(rank in own for own in members) for rank in lost}
    assert all(since[rank] in lost[rank] for rank in lost), since
    assert members == [
        [rank for rank in range(world) if rank not in since or step < since[rank]]
        for step in range(scripts.STEPS)
    ]
    expected = scripts.replayed(members, norms=norms)
    for rank in survivors:
        if sends is not None:
            expected = scripts.exchanged(members, sends, rank)
        torch.testing.assert_close(torch.load(directory / f"{rank}.pt"), expected, rtol=1e-5, atol=1e-5)
    return since


def cases() -> list[tuple[str, str]]:
    """Hosts, and where rank 1 dies: at each edge that scripts have, then at random moments."""
    random = Random(0)  # noqa: S311  # a seed gives the same cases again
    edges = sorted(itertools.product(("aaa", "abc"), scripts.EDGES), key=lambda _: random.random())
    moments = (
        (random.choice(("aaa", "abc", "aab")), f"{random.uniform(0, 20):.2f} ms after forward")
        for _ in range(CASES)
    )
    return list(itertools.islice(itertools.chain(edges, moments), CASES))


@pytest.mark.parametrize(("hosts", "edge"), cases())
def test_a_rank_that_dies_anywhere_in_a_step_costs_the_others_nothing(
    edge: str, hosts: str, tmp_path: Path
) -> None:
    """Broken: a job on spot machines would end with the first that is taken, or its replicas would differ from there on."""
    outcome, output = run(tmp_path, list(hosts), f"1:{scripts.LOST_IN}:{edge}")
    assert outcome.code == 0, output
    steps = first_without(scripts.LOST_IN, edge)
    if edge not in scripts.EDGES:
        steps = set(range(scripts.LOST_IN - 1, scripts.STEPS + 1))
    check(tmp_path, 3, {1: steps})


@pytest.mark.parametrize("hosts", ["aabb", "aaaa"][: 1 + (CASES > FEW)])
def test_ranks_are_lost_one_after_the_other_until_one_is_left(
    hosts: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a job would survive one loss, and not the next, or not that of rank 0."""
    trace = tmp_path / "trace"
    outcome, output = run(
        tmp_path, list(hosts), "0:2:launched", "3:5:forward", "1:8:prepared", trace=str(trace)
    )
    assert outcome.code == 0, output
    since = check(
        tmp_path,
        4,
        {0: first_without(2, "launched"), 3: first_without(5, "forward"), 1: first_without(8, "prepared")},
    )
    changes = read(trace).members_changes()
    assert [(each.what, each.who[:6], each.ranks, each.step) for each in changes] == [
        ("lost", "rank 0", 3, since[0]),
        ("lost", "rank 3", 2, since[3]),
        ("lost", "rank 1", 1, since[1]),
    ]
    assert changes[-1].again, "rank 1 had all sums of the step in which it died"
    assert "training goes on from step 8" in caplog.text


@pytest.mark.parametrize("edge", ["prepared", "done", "launched"][: 2 + (CASES > FEW)])
def test_running_statistics_are_those_of_the_first_rank_that_is_left(edge: str, tmp_path: Path) -> None:
    """Broken: ranks would evaluate the model differently, or the step in which rank 0 dies would leave two kinds of statistics."""
    outcome, output = run(tmp_path, list("abca"), scripts.NORMS, f"0:{scripts.LOST_IN}:{edge}", "3:8:forward")
    assert outcome.code == 0, output
    check(tmp_path, 4, {0: first_without(scripts.LOST_IN, edge), 3: first_without(8, "forward")}, norms=True)


BEFORE_EDGES = ("forward", "optimizer", "launched", "backward", "prepared")


@pytest.mark.parametrize("edge", BEFORE_EDGES[: 1 + CASES])
def test_buffers_are_those_of_the_first_rank_that_is_left_before_each_forward(
    edge: str, tmp_path: Path
) -> None:
    """Broken: a rank would compute with buffers of its own, or the others wait for those of a rank that is gone."""
    outcome, output = run(
        tmp_path, list("abca"), scripts.BEFORE, f"0:{scripts.LOST_IN}:{edge}", "3:8:forward"
    )
    assert outcome.code == 0, output
    lost = {0: first_without(scripts.LOST_IN, edge), 3: first_without(8, "forward")}
    check(tmp_path, 4, lost, sends=[0 if step <= scripts.LOST_IN else 1 for step in range(scripts.STEPS)])


@pytest.mark.parametrize("late", [False, True], ids=["all on time", "the others late"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_lost_while_buffers_travel_costs_the_others_nothing(
    rank: int, late: bool, tmp_path: Path
) -> None:
    """Broken: ranks that have all buffers would train on, and the others wait for them for ever.

    Where the others are still in the barrier of the step before, as they may also be on a loaded machine, none of them knows
    that it stands: they repeat it.
    """
    others = [f"{each}:{scripts.LOST_IN - 1}:entered pauses" for each in range(3) if each != rank and late]
    outcome, output = run(
        tmp_path, list("abc"), scripts.BEFORE, f"{rank}:{scripts.LOST_IN}:exchange", *others
    )
    assert outcome.code == 0, output
    steps = first_without(scripts.LOST_IN, "forward")
    if rank == 1:
        check(tmp_path, 3, {1: steps}, sends=[0] * scripts.STEPS)
        return
    # Some ranks may have had the buffers of rank 0 by then, which do not matter to gradients: the next forward has equal ones.
    first, second = (json.loads((tmp_path / f"{at}.json").read_text()) for at in (1, 2))
    assert [each["digest"][1] for each in first] == [each["digest"][1] for each in second]
    assert first[scripts.LOST_IN + 1 :] == second[scripts.LOST_IN + 1 :]
    worlds = [len(each["members"]) for each in first]
    assert worlds in [[3] * step + [2] * (scripts.STEPS - step) for step in steps]


def test_below_the_least_the_job_ends_and_names_who_is_missing(tmp_path: Path) -> None:
    """Broken: a job of too few would train on with other results than its user wants, or wait for ever."""
    outcome, output = run(tmp_path, list("abc"), "2:3:prepared", members_min=3)
    assert outcome.code == SIGNALLED + signal.SIGKILL, output
    assert outcome.failures[0].rank == 2
    assert outcome.ended is not None
    assert "2 of at least 3 members" in outcome.ended.why
    assert outcome.ended.lost == (2,)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("hosts", ["abc", "aaa"][: 1 + (CASES > FEW)])
def test_a_rank_that_is_stopped_is_left_behind_and_ended(
    hosts: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a machine that hangs would hold up all others, go on later with a model of its own, or seem killed by its system."""
    outcome, output = run(tmp_path, list(hosts), f"1:{scripts.LOST_IN}:launched stopped", heartbeat_s=4.0)
    assert outcome.code == 0, output
    check(tmp_path, 3, {1: first_without(scripts.LOST_IN, "launched")})
    assert "the others went on without it, and it was killed (exit code 137)" in caplog.text


def run_loop(
    directory: Path, hosts: str, *victims: str, accumulated: int = 1, workers: int = 0
) -> tuple[Outcome, str]:
    """A job over a data set, whose gradients are of so many batches, which are prepared by so many workers."""
    return run(directory, list(hosts), str(accumulated), str(workers), *victims, script=LOOP_SCRIPT)


def check_loop(directory: Path, world: int, gone: set[int], *, repeats: int = 0) -> dict[str, Any]:
    """All that are left have seen the same, each sample was counted once in an epoch, and one process makes the same model of what
    was counted. What one of them noted. `repeats`: how many samples may be counted twice in an epoch, because fewer were left
    than there were ranks."""
    survivors = sorted(set(range(world)) - gone)
    notes = [json.loads((directory / f"{rank}.json").read_text()) for rank in survivors]
    first = notes[0]
    assert all(each["steps"] == first["steps"] and each["told"] == first["told"] for each in notes)
    members = [each["members"] for each in first["steps"]]
    assert members[-1] == survivors
    for rank in range(world):
        for step, parameters in lines(directory / f"{rank}.saved"):
            assert parameters == first["steps"][step]["digest"]

    # What counts is what the members of a step drew for it.
    drawn: list[list[list[list[int]]]] = [[[] for _ in own] for own in members]
    counted: list[Counter[int]] = [Counter() for _ in range(loops.EPOCHS)]
    for rank in range(world):
        for step, epoch, samples in lines(directory / f"{rank}.drawn"):
            if rank in members[step]:
                drawn[step][members[step].index(rank)].append(samples)
                counted[epoch].update(samples)
    for each in counted:
        assert set(each) == set(range(loops.SAMPLES))
        assert each.total() - loops.SAMPLES <= repeats
    before: Counter[int] = Counter()
    for own, noted in zip(drawn, first["steps"], strict=True):
        place = noted["place"]
        before[place["data_epoch"]] += sum(map(len, itertools.chain.from_iterable(own)))
        assert 0 <= before[place["data_epoch"]] - (place["at"] - len(place["returned"])) <= repeats

    # A data set that is first asked for when ranks are gone is shared by the others.
    held_out = [sample for each in notes for batch in each["held out"][-1] for sample in batch]
    assert sorted(held_out) == list(range(loops.HELD_OUT))

    expected = loops.replayed(drawn)
    for rank in survivors:
        torch.testing.assert_close(torch.load(directory / f"{rank}.pt"), expected, rtol=1e-5, atol=1e-5)
    return first


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    ("hosts", "accumulated", "workers", "victims"),
    [
        # Where rank 0 dies, its step stands with it or without it; rank 3 dies in the last step of the first pass.
        ("aabb", 1, 0, ("0:2:done", "3:9:forward")),
        # The second rank is lost before the others have noticed the first one, or after.
        ("abcd", 2, 1, ("1:3:forward", "2:3:launched")),
    ],
)
def test_the_loop_of_a_script_learns_of_losses(
    hosts: str, accumulated: int, workers: int, victims: tuple[str, ...], tmp_path: Path
) -> None:
    """Broken: samples of lost ranks would be left out of the epoch, or others come twice; ranks would be told in different steps,
    or train with different learning rates; or a data set that is first asked for after a loss would be waited for in vain."""
    outcome, output = run_loop(tmp_path, hosts, *victims, accumulated=accumulated, workers=workers)
    assert outcome.code == 0, output
    first = check_loop(tmp_path, len(hosts), {int(each[0]) for each in victims})
    members = [each["members"] for each in first["steps"]]
    start, *changes = first["told"]
    assert start[:5] == [0, 0, 0, len(hosts), []]
    steps = [at for at in range(1, len(members)) if members[at] != members[at - 1]]
    assert len(steps) == len(changes)
    for at, (step, told_in, old_world, new_world, lost, parameters) in zip(steps, changes, strict=True):
        assert (step, told_in) == (at, at)
        assert (old_world, new_world) == (len(members[at - 1]), len(members[at]))
        assert [members[at - 1][rank] for rank in lost] == sorted(set(members[at - 1]) - set(members[at]))
        assert parameters == first["steps"][at - 1]["digest"], "told before the optimizer has stepped"


def test_no_rank_leaves_a_checkpoint_from_which_the_others_have_not_gone_on(tmp_path: Path) -> None:
    """Broken: rank 0, which writes the checkpoint, is lost right after it, and the others, which have all sums of its last step and
    have not left the step's barrier, repeat the step without it. A job that starts with the checkpoint would go on from a state
    that this one never had."""
    pauses = (f"{rank}:2:entered pauses" for rank in (1, 2, 3))
    outcome, output = run_loop(tmp_path, "abcd", "0:2:saved", *pauses)
    assert outcome.code == 0, output
    check_loop(tmp_path, 4, {0})
    assert [step for step, _ in lines(tmp_path / "0.saved")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("hosts", "accumulated", "leavers", "pauses"),
    [
        ("aabb", 1, (1,), 0),
        ("aaaa", 2, (0, 3), 0),
        ("abcd", 1, (2, 0), 0),
        # The others have gone on before the leaver has left the barrier of its last step.
        ("aabc", 1, (0,), 5),
    ],
)
def test_ranks_that_leave_in_order_cost_no_step_and_no_sample(
    hosts: str,
    accumulated: int,
    leavers: tuple[int, ...],
    pauses: int,
    *,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Broken: a machine that is taken back with a notice would cost what one costs that dies; its script would be killed before it
    has saved anything; or another rank would be taken for lost, because it was the first to go on without the leaver."""
    leaves = [f"{rank}:{2 + at}:forward leaves" for at, rank in enumerate(leavers)]
    leaves += [f"{leavers[0]}:{3 + at}:entered pauses" for at in range(pauses)]
    stays = next(rank for rank in range(len(hosts)) if rank not in leavers)
    leaves += [f"{stays}:{step}:forward pauses" for step in TIME_TO_LEAVE]
    outcome, output = run_loop(tmp_path, hosts, *leaves, accumulated=accumulated)
    assert (outcome.code, outcome.failures) == (0, ()), output
    first = check_loop(tmp_path, len(hosts), set(leavers))
    members = [each["members"] for each in first["steps"]]
    assert all(each["place"]["returned"] == [] for each in first["steps"])
    steps = [at for at in range(1, len(members)) if members[at] != members[at - 1]]
    _, *changes = first["told"]
    assert len(steps) == len(changes)
    for at, (step, told_in, _, new_world, left, parameters) in zip(steps, changes, strict=True):
        assert (step, told_in, new_world) == (at, at - 1, len(members[at]))
        assert [members[at - 1][rank] for rank in left] == sorted(set(members[at - 1]) - set(members[at]))
        assert parameters == first["steps"][at - 1]["digest"], "told when the optimizer has stepped"
    for rank in leavers:
        # It has drawn nothing that it did not give its part of.
        assert all(rank in members[step] for step, *_ in lines(tmp_path / f"{rank}.drawn"))
    assert "done again" not in caplog.text.replace("nothing was done again", "")


def test_a_rank_that_is_told_to_end_leaves_in_order(tmp_path: Path) -> None:
    """Broken: a machine that its provider takes back costs a step, or the processes that load its data are not ended."""
    pauses = (f"0:{step}:forward pauses" for step in TIME_TO_LEAVE)
    outcome, output = run_loop(tmp_path, "aabb", "2:2:forward terminated", *pauses, workers=1)
    assert (outcome.code, outcome.failures) == (0, ()), output
    first = check_loop(tmp_path, 4, {2})
    assert first["steps"][-1]["members"] == [0, 1, 3]
    assert all(each["place"]["returned"] == [] for each in first["steps"])


def test_a_rank_leaves_while_another_is_lost(tmp_path: Path) -> None:
    """Broken: of those that go on without a leaver, some know of the loss before that, and would draw other samples than others."""
    for seed in range(max(1, CASES // FEW)):
        directory = tmp_path / str(seed)
        directory.mkdir()
        edge = scripts.EDGES[seed % len(scripts.EDGES)]
        pauses = (f"0:{step}:forward pauses" for step in TIME_TO_LEAVE)
        outcome, output = run_loop(
            directory, "abcd", "1:2:forward leaves", f"3:{3 + seed % 3}:{edge}", *pauses
        )
        assert outcome.code == 0, output
        assert {each.rank for each in outcome.failures} <= {3}
        check_loop(directory, 4, {1, 3}, repeats=3)


def test_a_job_of_as_few_as_it_must_have_keeps_who_wants_to_leave(tmp_path: Path) -> None:
    """Broken: the job would end because of a rank that could have stayed."""
    victims = [f"{rank}:2:forward leaves" for rank in range(2)]
    outcome, output = run(tmp_path, list("ab"), "1", "0", *victims, script=LOOP_SCRIPT, members_min=2)
    assert outcome.code == 0, output
    check_loop(tmp_path, 2, set())
