"""The guard of steps alone: verdicts where ranks drift apart or learn slower, and only there."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hocket.training.guard.drift import INFINITE, Judge, Losses, Report, seen_of

STEPS = 30
SILENT = Report(moved=1.0, along=0.0, step=0.0, pace=0.0, rate=0.1, first=0.0, last=0.0, noise2=-1.0)


def silent(judge, moved, *, rate=0.1, along=0.0, step=1.0, pace=0.0, ranks=(0, 1), steps=STEPS):
    report = SILENT._replace(moved=moved, rate=rate, along=along, step=step, pace=pace)
    return judge.see(0, steps, dict.fromkeys(ranks, report))


def logged(judge, losses, *, ranks=(0, 1), pace=0.1):
    """Show the losses of a turn: those of each rank, or those that all log."""
    of_rank = losses if np.ndim(losses) == 2 else [losses] * len(ranks)
    reports = {}
    for rank, values in zip(ranks, of_rank, strict=True):
        own = Losses()
        for each in values:
            own.see(each)
        found = own.report(len(values))
        reports[rank] = SILENT._replace(
            pace=pace, **dict(zip(("first", "last", "noise2", "noise2_last"), found, strict=True))
        )
    return judge.see(0, len(of_rank[0]), reports)


@pytest.mark.parametrize("sites", [(), ((0, 1), (2, 3), (4, 5), (6, 7)), ((0, 1, 2, 3, 4, 5), (6,), (7,))])
def test_ranks_of_a_site_move_as_one(sites):
    """Broken: sites that undo one another would be taken for ranks that learn, as ranks of a site always agree."""
    for agrees, undoes in ((1.1, False), (0.2, True)):
        judge = Judge()
        judge.again(sites)
        apart = 1 / sum((len(site) / 8) ** 2 for site in sites) if sites else 8
        verdicts = [
            silent(judge, 1.0, step=math.sqrt(0.5 * agrees / apart), pace=1.0, ranks=range(8))
            for _ in range(6)
        ]
        assert any(each is not None and not each.diverges for each in verdicts) == undoes


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("kept", [0.9, 1.0, 1.5])
def test_trainings_that_go_well_are_let_alone(noise, kept):
    """Broken: jobs would exchange more often than they need. 20 runs of 60 exchanges, whose anchor keeps nearly all that ranks
    gain, or more."""
    verdicts = []
    for seed in range(20):
        random, judge = np.random.default_rng(seed), Judge()
        anchor = 2.3
        for _ in range(60):
            fall = 0.05 * (anchor - 0.3)
            turn = anchor - fall * np.linspace(0, 1, STEPS)
            verdicts.append(logged(judge, turn * np.exp(random.normal(0, noise, (2, STEPS)))))
            anchor -= kept * fall
    assert sum(each is not None for each in verdicts) <= 1


@pytest.mark.parametrize("growth", [1.05, 1.2, 3.0])
@pytest.mark.parametrize("begins", [0, 5])
def test_a_loss_that_grows_in_a_turn_is_divergence(growth, begins):
    """Broken: the anchor would take parameters from which training does not come back."""
    random, judge = np.random.default_rng(1), Judge()
    for _ in range(begins):
        assert logged(judge, 2.0 + random.normal(0, 0.1, STEPS)) is None
    verdict = logged(judge, 2.0 * growth ** np.arange(STEPS))
    assert verdict is not None
    assert verdict.diverges
    assert "in 30 steps alone" in verdict.why


def test_gains_that_exchanges_do_not_keep_are_slow_learning():
    """Broken: ranks would undo what they learn, exchange after exchange, without a word. It is seen with the second one."""
    random, judge = np.random.default_rng(2), Judge()
    turn = np.linspace(2.3, 0.3, STEPS)
    assert logged(judge, turn + random.normal(0, 0.05, STEPS)) is None
    verdict = logged(judge, turn + random.normal(0, 0.05, STEPS))
    assert verdict is not None
    assert not verdict.diverges
    assert "the ranks' losses fell by" in verdict.why
    assert verdict.share < 0.1


@pytest.mark.parametrize(("pace", "exchanges"), [(0.1, 2), (0.02, 4)])
def test_what_ranks_soon_gain_back_was_lost_all_the_same(pace, exchanges):
    """Broken: where data is unlike, ranks lose with each exchange what they have learned, and gain it back within some steps: the
    second exchange must show it although most of the turn looks like progress, and some more where turns are straight."""
    random, judge = np.random.default_rng(6), Judge()
    falls, regained = 0.3 * np.linspace(0, 1, 100), 1.2 * np.exp(-np.arange(100) / 5)
    found = []
    for at in range(exchanges):
        turn = 2.2 - 0.4 * at - falls + regained
        turn[:4] += 0.4 * at
        found.append(logged(judge, turn + random.normal(0, 0.2, (4, 100)), ranks=range(4), pace=pace))
    assert found[0] is None
    assert found[-1] is not None
    assert not found[-1].diverges
    assert found[-1].share < 0.1


def test_a_script_may_log_a_step_before_or_after_its_exchange():
    """Broken: the loss of the step before an exchange would be taken for the anchor's, and hide what the exchange lost."""
    before, after = Losses(), Losses()
    for _ in range(2):
        turn = [4.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
        for each in turn:
            before.see(each)
        for each in turn[:-1]:
            after.see(each)
        found = before.report(8)[0], after.report(8)[0]
        after.see(turn[-1])
    assert found == (4.0, 4.0)
    late = Losses()
    for each in (9.0, 9.0, 4.0, 3.0, 2.0, 1.0, 1.0, 1.0):
        late.see(each)
    assert late.report(8, 2)[0] == 4.0


def test_unlike_data_alone_is_no_slow_learning():
    """Broken: where ranks have data of their own, each gains more alone than all together, with any number of steps: jobs would
    wait for one another and learn no faster."""
    straight, bent, unknown = Judge(), Judge(), Judge()
    turns = [np.linspace(2.0 - 0.1 * at, 1.8 - 0.1 * at, STEPS) for at in range(8)]
    assert all(logged(straight, turn, pace=1 / STEPS) is None for turn in turns)
    assert all(logged(unknown, turn, pace=0.0) is None for turn in turns)
    assert any(logged(bent, turn, pace=0.1) is not None for turn in turns)


def test_small_losses_and_noise_say_nothing():
    """Broken: a model that has learned its data would be taken for one that diverges, as its loss doubles from nothing."""
    random, judge = np.random.default_rng(3), Judge()
    assert logged(judge, np.linspace(2.3, 0.01, STEPS)) is None
    assert all(logged(judge, 0.003 * np.exp(random.normal(0, 1.0, STEPS))) is None for _ in range(100))


def test_without_losses_lengths_are_judged():
    """Broken: a script that logs no loss would have no guard."""
    judge = Judge()
    assert all(silent(judge, moved) is None for moved in (1.0, 3.0, 2.0, 1.5, 4.0))
    verdict = silent(judge, 17.0)
    assert verdict is not None
    assert verdict.diverges
    assert verdict.why == "ranks came 17 away from the anchor in 30 steps alone, and 1 before"


def test_what_was_learned_may_be_left_again():
    """Broken: a rate that is raised again, or other data, would be taken for divergence after a training has come to rest."""
    judge = Judge()
    assert all(silent(judge, 2.0**-each) is None for each in range(30))
    assert silent(judge, 0.9) is None
    assert silent(judge, 1.1) is not None


def test_a_rate_that_warms_up_is_no_divergence():
    """Broken: a warm-up from a small rate would end steps alone, since ranks come farther with each turn."""
    judge = Judge()
    assert all(silent(judge, 0.01 * each, rate=0.001 * each) is None for each in range(1, 60))


def test_steps_that_undo_those_before_are_divergence():
    """Broken: an outer momentum that swings farther and farther would be seen by nobody. Once may be chance."""
    judge = Judge()
    assert silent(judge, 1.0) is None
    assert silent(judge, 1.2, along=-1.3, step=1.1) is None
    verdict = silent(judge, 1.4, along=-1.5, step=1.3)
    assert verdict is not None
    assert verdict.diverges
    calm = Judge()
    assert all(silent(calm, 1.0, along=-0.9) is None for _ in range(50))


@pytest.mark.parametrize("ranks", [2, 8])
def test_progress_that_cancels_out_is_slow_learning(ranks):
    """Broken: ranks with unlike data would walk apart and be averaged back for ever. Progress that has nothing in common is noise,
    and ranks that still walk straight would undo one another with fewer steps alone, too: both are let alone."""
    apart, noisy, straight = Judge(), Judge(), Judge()
    little, half = math.sqrt(0.3 / ranks), math.sqrt(1 / ranks)
    found = [silent(apart, 1.0, step=little, pace=0.2, ranks=range(ranks)) for _ in range(5)]
    assert [each is None for each in found] == [True, True, True, False, False]
    assert all(silent(noisy, 1.0, step=half, pace=0.2, ranks=range(ranks)) is None for _ in range(50))
    assert all(silent(straight, 1.0, step=little, pace=0.05, ranks=range(ranks)) is None for _ in range(50))


def test_parameters_that_are_not_finite_are_never_taken():
    """Broken: one rank's NaN would be in the anchor of all."""
    verdict = Judge().see(0, STEPS, {0: SILENT, 3: SILENT._replace(moved=INFINITE)})
    assert verdict is not None
    assert verdict.why == "rank 3 came to parameters that are not finite in 30 steps alone"


def test_other_ranks_and_other_turns_are_no_measure():
    """Broken: where ranks are lost or turns end early, what others did would be taken for growth."""
    judge = Judge()
    assert silent(judge, 1.0) is None
    assert silent(judge, 100.0, ranks=(0, 2)) is None
    assert silent(judge, 10_000.0, ranks=(0, 2), steps=60) is None
    assert silent(judge, 1_000_000.0, ranks=(0, 2), steps=60) is not None


def test_more_steps_alone_follow_where_exchanges_keep_what_ranks_gain():
    """Broken: ranks would exchange too often for good, or make more steps alone although exchanges take back what they gain."""
    random, kept, lost, silent_one = np.random.default_rng(7), Judge(), Judge(), Judge()
    turns = [np.linspace(2.0 - 0.2 * at, 1.8 - 0.2 * at, 8) + random.normal(0, 0.02, 8) for at in range(4)]
    found = []
    for turn in turns:
        assert logged(kept, turn) is None
        logged(lost, turns[0] + random.normal(0, 0.02, 8))
        silent(silent_one, 1.0, steps=8)
        found.append((kept.keeps(0), lost.keeps(0), silent_one.keeps(0)))
    assert found == [(at > 0, False, at > 2) for at in range(4)]
    assert not kept.keeps(1)


def test_a_judge_goes_on_from_what_was_saved():
    """Broken: a resumed job would judge otherwise than one that goes on, or its ranks unlike."""
    judge, other = Judge(), Judge()
    logged(judge, np.linspace(2.3, 0.3, STEPS))
    other.restore(judge.saved())
    assert other.saved() == judge.saved()
    assert logged(other, np.linspace(2.3, 0.3, STEPS)) == logged(judge, np.linspace(2.3, 0.3, STEPS))


def test_a_loss_counts_where_all_ranks_log_it():
    """Broken: one rank's loss would stand for all."""
    own = SILENT._replace(first=2.0, last=1.0, noise2=0.01)
    assert seen_of(STEPS, {0: own, 1: SILENT}).noise2 is None
    assert seen_of(STEPS, {0: own, 1: own}).noise2 == pytest.approx(0.005)
