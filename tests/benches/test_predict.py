"""How predictions are scored: by cluster, and apart from what the constant was fitted on. Nothing is measured here."""

import pytest

from benches.predict import measure as predict
from benches.predict.measure import CLUSTERS, FITTED_ON, INCASTS, Row, agreement, fit, plans

pytestmark = pytest.mark.tools

JUDGE, OTHER = [name for name in CLUSTERS if name not in FITTED_ON][:2]


def row(cluster, plan, measured_s, flow_s):
    error = flow_s / measured_s - 1
    return Row(
        cluster=cluster, plan=plan, measured_s=measured_s, flow_s=flow_s, closed_form_s=1.0, error=error
    )


def test_the_order_of_plans_is_scored_on_each_cluster():
    """Broken: a model that ranks all plans backwards would have a Spearman near 1, since clusters differ in speed."""
    rows = [row(JUDGE, str(at), 1 + at / 10, 1.2 - at / 10) for at in range(3)]
    rows += [row(OTHER, str(at), 100 + at, 101 + at) for at in range(3)]
    found = agreement(rows)
    assert found.clusters[JUDGE].spearman == pytest.approx(-1)
    assert found.clusters[OTHER].spearman == pytest.approx(1)
    assert found.held_out.spearman == pytest.approx(-1)
    assert found.clusters[JUDGE].regret == pytest.approx(0.2)


def test_what_the_constant_was_fitted_on_does_not_judge_it():
    """Broken: the rows that a constant was chosen for would show how good it is."""
    judging = [row(JUDGE, "ring", 1.0, 1.1), row(JUDGE, "direct", 2.0, 2.2)]
    fitted = [row(FITTED_ON[0], "ring", 1.0, 1.0), row(FITTED_ON[0], "direct", 2.0, 2.0)]
    found = agreement(judging + fitted)
    assert (found.held_out.configurations, found.held_out.median_error) == (2, pytest.approx(0.1))
    assert agreement(fitted).held_out is None


def test_a_fit_finds_the_constant_that_made_the_times():
    """Broken: the shipped constant could not be found again by its command."""
    rows = [
        row(name, plan.label, predict._with_incast(plan, name, 0.94), 1.0)
        for name in (*FITTED_ON, JUDGE)
        for plan in plans(name)
        if plan.label in ("ring", "direct")
    ]
    errors = fit(rows)
    assert tuple(errors) == INCASTS
    assert min(errors, key=errors.get) == 0.94
    assert errors[0.94] == 0
