"""Account of an elastic job's work: what counts, what changes cost, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.artefacts.goodput import Goodput, Lost, whole
from hocket.members.account import Account, Point

STEP_S, BATCH = 0.5, 8


class Told:
    """Account of a job whose ranks take as long for each step, by a clock of its own."""

    def __init__(self, ranks: int, *, samples: bool = True) -> None:
        self.account = Account()
        self.ranks, self.now_s = ranks, 100.0
        self._samples = samples
        self._generation = self._steps = self._shares = 0
        self.made = 0
        """Steps of single ranks, in all."""
        self.account.begin(ranks, self.now_s)

    def step(self, times: int = 1, *, late_s: float = 0.0, joining: bool = False) -> None:
        for _ in range(times):
            self.now_s += STEP_S + late_s
            self._steps += 1
            self._shares += self.ranks
            self.made += self.ranks
            self.say(joining=joining)

    def say(self, *, joining: bool = False) -> None:
        point = Point(
            at_s=self.now_s,
            generation=self._generation,
            steps=self._steps,
            shares=self._shares,
            samples=self._shares * BATCH if self._samples else 0,
        )
        self.account.stands(point, joining=joining)

    def lose(self, count: int, *, computed_s: float, stood_s: float, again_s: float) -> None:
        """Lose ranks: so long after the last step all stop, and so much later the others do the step again, which takes longer."""
        self.now_s += computed_s + stood_s
        self.ranks -= count
        self.account.lost(self.ranks, self.now_s)
        self.account.resumed(self.now_s, again=True)
        self.now_s += again_s - STEP_S
        self.step()

    def meet(self, count: int, took_s: float) -> None:
        self.now_s += took_s
        self.ranks += count
        self.account.joined(self.ranks, self.now_s)
        self.say()
        self.account.resumed(self.now_s, again=False)
        self._generation, self._shares = self._generation + 1, 0
        self.step()

    def leave(self, count: int, took_s: float) -> None:
        self.account.leave(self.ranks - count, self.now_s)
        self.step()
        self.now_s += took_s
        self.account.resumed(self.now_s, again=False)
        self.ranks -= count
        self.step()

    def found(self) -> Goodput:
        found = self.account.goodput()
        assert found is not None
        assert found.undisturbed == pytest.approx(found.committed + found.lost.total)
        return found


@pytest.mark.parametrize("samples", [True, False])
def test_an_undisturbed_job_has_all_its_work(samples: bool) -> None:
    """Broken: a job would be said to lose work by changes that it never had."""
    job = Told(4, samples=samples)
    job.step(20)
    found = job.found()
    assert found.unit == ("samples" if samples else "steps of a rank")
    assert (found.committed, found.steps) == (20 * 4 * (BATCH if samples else 1), 20)
    assert (found.share, found.share_of_all) == (pytest.approx(1), pytest.approx(1))
    assert (found.time_s, found.ranks_s) == (pytest.approx(19 * STEP_S), pytest.approx(19 * 4 * STEP_S))


def test_an_evaluation_is_part_of_an_undisturbed_run() -> None:
    """Broken: scripts that evaluate between epochs would seem to lose work by changes of members."""
    job = Told(2)
    job.step(10)
    job.step(late_s=30.0)
    job.step(10)
    assert job.found().share == pytest.approx(1)


def test_a_loss_costs_what_it_stood_still_and_did_again() -> None:
    """Broken: nobody would know whether to mend the time until a loss is noticed, or the length of a step."""
    job = Told(4)
    job.step(20)
    job.lose(1, computed_s=0.4, stood_s=2.0, again_s=0.1)
    job.step(20)
    found = job.found()
    pace = BATCH / STEP_S  # of a rank
    lost = pace * (
        3 * (0.4 + 2.0 + 0.1 - STEP_S) + 2.4
    )  # the lost one's step, and its time until the decision
    assert found.lost.total == pytest.approx(lost)
    # The lost rank's samples are drawn again: that was a step's time of one rank.
    assert found.lost.done_again == pytest.approx(pace * (3 * 0.1 + STEP_S))
    assert found.lost == Lost(standing_still=found.lost.standing_still, done_again=found.lost.done_again)
    assert found.ranks_s == pytest.approx(19 * 4 * STEP_S + 4 * 2.4 + 3 * (0.1 + 20 * STEP_S))
    assert found.all_along == pytest.approx(BATCH * 4 + pace * 4 * found.time_s)


def test_waiting_for_enough_ranks_is_told_apart() -> None:
    """Broken: somebody would look for slow detection where a host is missing."""
    job = Told(2)
    job.step(20)
    job.account.waits(1, job.now_s + 1.0)
    job.now_s += 1.0 + 60.0
    job.account.enough(job.now_s)
    job.ranks = 1
    job.account.resumed(job.now_s, again=True)
    job.step()
    job.meet(1, 0.25)
    job.step(20)
    found = job.found()
    pace = BATCH / STEP_S
    assert found.lost.too_few_ranks == pytest.approx(60 * pace)
    assert found.lost.joining == pytest.approx(0.25 * pace)
    assert found.lost.standing_still == pytest.approx(pace * (2 * 1.0 - 2 * STEP_S))
    assert found.lost.done_again == pytest.approx(pace * (STEP_S + STEP_S))


def test_steps_are_slower_while_somebody_takes_the_state() -> None:
    """Broken: what joins cost beside training would be nowhere."""
    job = Told(2)
    job.step(20)
    job.say(joining=True)
    job.step(3, late_s=0.1, joining=True)
    job.step(late_s=0.1)
    job.step(10)
    assert job.found().lost == Lost(joining=pytest.approx(0.4 * 2 * BATCH / STEP_S))


def test_a_loss_overtakes_leavers() -> None:
    """Broken: ranks would be counted that are gone, or others left out that train."""
    job = Told(4)
    job.step(20)
    job.account.leave(3, job.now_s)
    job.lose(1, computed_s=0.2, stood_s=1.0, again_s=0.1)  # the leaver dies
    job.step(20)
    assert job.ranks == 3
    found = job.found()
    assert found.ranks_s == pytest.approx(19 * 4 * STEP_S + 4 * 1.2 + 3 * (0.1 + 20 * STEP_S))
    assert found.lost.leaving == 0


events = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 30)),
    st.tuples(st.just("lose"), st.floats(0.01, 20.0)),
    st.tuples(st.just("meet"), st.floats(0.0, 5.0)),
    st.tuples(st.just("leave"), st.floats(0.0, 1.0)),
)


@given(st.integers(1, 5), st.lists(events, max_size=12), st.booleans())
def test_all_time_is_accounted_for(
    ranks: int, happens: list[tuple[Literal["step", "lose", "meet", "leave"], float]], samples: bool
) -> None:
    """Broken: the parts of the work that was lost would not add up to what is missing."""
    job = Told(ranks, samples=samples)
    job.step(10)
    for what, much in happens:
        do: dict[str, Callable[[], object]] = {
            "step": lambda many=much: job.step(int(many)),
            "lose": lambda s=much: job.lose(1, computed_s=0.2, stood_s=s, again_s=0.3),
            "meet": lambda s=much: job.meet(1, s),
            "leave": lambda s=much: job.leave(1, s),
        }
        if job.ranks > 1 or what in ("step", "meet"):
            do[what]()
    found, unit = job.found(), BATCH if samples else 1
    assert found.committed == job.made * unit
    # All ranks have the same pace, whatever their number: undisturbed work is the time of all.
    first = ranks * unit
    assert found.undisturbed - first == pytest.approx(found.ranks_s * unit / STEP_S)
    assert found.lost.done_again >= 0
    assert found.lost.standing_still >= -1e-6
    assert min(found.lost.joining, found.lost.leaving) >= -1e-6


def test_nothing_is_said_before_a_pace_is_known() -> None:
    """Broken: a job that loses a rank at once would divide by nothing."""
    job = Told(3)
    assert job.account.goodput() is None
    job.step()
    assert job.account.goodput() is None
    job.lose(1, computed_s=0.1, stood_s=0.1, again_s=0.1)
    assert job.account.goodput() is None


def test_another_launcher_counts_from_what_it_finds() -> None:
    """Broken: what stood before would count as made in no time."""
    job = Told(2)
    job.step(20)
    account = Account()
    account.begin(2, job.now_s, counts_first=False)
    job.account = account
    job.step(11)
    found = job.found()
    assert (found.committed, found.steps, found.share) == (10 * 2 * BATCH, 10, pytest.approx(1))


def test_launchers_of_one_job_are_added() -> None:
    """Broken: the report of a job whose launcher was replaced would forget what was before."""
    first, second = Told(2), Told(3)
    first.step(20)
    early = first.found()
    first.step(5)
    second.step(10)
    found = whole([early, first.found(), second.found()])
    assert found is not None
    assert found.committed == first.found().committed + second.found().committed
    assert found.time_s == pytest.approx(24 * STEP_S + 9 * STEP_S)
    assert whole([]) is None
