"""The comparison's arithmetic, on numbers small enough to check by hand."""

import pytest

from hocket.artefacts.plan import Candidate
from hocket.tools.demo.comparison import Comparison, Strategy, quality, row, speedup
from hocket.tools.demo.events import RankResult
from hocket.tools.demo.training import Trained, Training

pytestmark = pytest.mark.hosts


def _trained(steps_s: list[float], *, seed: int = 0, loss: float = 2.0, right: int = 8) -> Trained:
    """Two ranks, of which the second takes 0.2 s more for each step."""
    ranks = []
    for rank in range(2):
        times_s, now_s = [], 0.0
        for step_s in steps_s:
            now_s += step_s + 0.2 * rank
            times_s.append(now_s)
        losses = [loss + 1 + rank] * (len(steps_s) - 1) + [loss + rank]
        ranks.append(RankResult(rank=rank, times_s=times_s, losses=losses, score_total=right, score_count=10))
    training = Training(strategy="ddp", model="digits", steps=len(steps_s), seed=seed)
    return Trained(training=training, ranks=tuple(ranks), trunk_bytes_per_step=100.0 + seed)


def _comparison(*strategies: Strategy) -> Comparison:
    return Comparison(
        model="", metric_name="", cluster="", strategies=strategies, candidates=(), plan_reason=""
    )


def test_the_median_leaves_out_the_warm_up() -> None:
    """Broken: connections and first allocations would count as steps."""
    found = row("ddp", [_trained([50.0, 40.0, 1.0, 3.0, 1.0])], compute_s=0.11)
    assert found.step_s == pytest.approx(1.1)
    assert found.steps_per_s == pytest.approx(1 / 1.1)
    assert found.wait_share == pytest.approx(0.9)
    assert found.times_s == pytest.approx((50.0, 90.0, 91.0, 94.0, 95.0))


def test_computing_longer_than_a_step_is_no_negative_waiting() -> None:
    """Broken: a noisy profile would show a share below zero."""
    assert row("ddp", [_trained([1.0] * 4)], compute_s=9.0).wait_share == 0


def test_losses_and_metric_are_means_over_ranks_and_seeds() -> None:
    """Broken: the table would show one rank's luck."""
    runs = [_trained([1.0] * 4, right=8), _trained([2.0] * 4, seed=1, loss=4.0, right=6)]
    found = row("ddp", runs, compute_s=0.1)
    assert found.losses == (3.5, 3.5, 3.5, 2.5)
    assert found.loss == pytest.approx((2.5 + 4.5) / 2)
    assert found.metric == pytest.approx(0.7)
    assert found.metric_std == pytest.approx(0.02**0.5)
    assert found.trunk_bytes_per_step == pytest.approx(100.5)
    assert found.step_s == pytest.approx(1.6)


def test_one_seed_has_no_spread() -> None:
    """Broken: a single run would claim to know its spread."""
    assert row("ddp", [_trained([1.0] * 4)], compute_s=0.1).metric_std is None


def test_the_ratio_is_of_step_times() -> None:
    """Broken: the headline would be wrong."""
    slow, fast = row("ddp", [_trained([5.9] * 4)], 0.1), row("hocket", [_trained([0.9] * 4)], 0.1)
    comparison = _comparison(slow, fast)
    assert speedup(comparison, "hocket") == pytest.approx(6.0)
    assert speedup(comparison, "ddp", "hocket") == pytest.approx(1 / 6)
    assert speedup(comparison, "ddp") == 1


def test_no_ratio_is_claimed_over_what_was_not_trained() -> None:
    """Broken: on loopback, where DDP is left out, Hocket would be shown as its own baseline."""
    assert speedup(_comparison(row("hocket", [_trained([0.9] * 4)], 0.1)), "hocket") is None


def test_regret_and_error_of_prediction() -> None:
    """Broken: a bad plan would pass as a good one."""
    candidates = [
        Candidate(label="a", predicted_step_s=1.0, measured_step_s=1.1),
        Candidate(label="b", predicted_step_s=1.2, measured_step_s=1.0),
        Candidate(label="c", predicted_step_s=3.0, measured_step_s=4.0),
        Candidate(label="not measured", predicted_step_s=9.0),
    ]
    found = quality(candidates, "a")
    assert found is not None
    assert (found.chosen, found.fastest, found.measured) == ("a", "b", 3)
    assert found.regret == pytest.approx(0.1)
    assert found.prediction_error_median == pytest.approx(0.2)


def test_nothing_is_claimed_about_what_was_not_measured() -> None:
    """Broken: without --all-candidates the demo would praise its own plan."""
    candidates = [Candidate(label="a", predicted_step_s=1.0), Candidate(label="b", predicted_step_s=2.0)]
    assert quality(candidates, "a") is None
