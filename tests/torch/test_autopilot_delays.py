"""A job that was told that gradients may be merged and late finds out by itself that this pays, and loses none of them."""

from types import SimpleNamespace

import pytest

from benches.delays import drift
from tests.support import warm

pytestmark = pytest.mark.hosts

ITERATIONS = 60


def drive(emulated, promise):
    cluster, _ = drift.racks()
    with pytest.MonkeyPatch.context() as patch, emulated(cluster) as bed:
        patch.setattr(drift, "sys", SimpleNamespace(executable=warm.interpreter()))
        return drift.drive(bed, ITERATIONS, promise=promise)


@pytest.fixture(scope="module")
def driven(emulated):
    """What came of it, and what it did to its plan."""
    return drive(emulated, drift.PROMISE)


def test_every_iteration_is_applied_once(driven):
    """Gradients would be lost, or applied twice, where one plan's turns end and another's begin."""
    found, _ = driven
    assert (found.least_applied, found.most_applied) == (ITERATIONS, ITERATIONS)


@pytest.mark.timing
def test_late_gradients_are_adopted_and_kept(driven):
    """A promise would be without effect in a job that has no plan."""
    _, changes = driven
    for what in ("adopted", "kept"):
        assert any(each.what == what and "late by up to 1" in each.label for each in changes), changes


@pytest.mark.timing
def test_steps_alone_are_adopted_and_kept(emulated):
    """A job would exchange gradients in each step, although it may leave that to every tenth and its network asks for it; or its
    first steps alone, which are few, would speak against the plan that has more."""
    _, changes = drive(emulated, "local,local=10")
    for what in ("adopted", "kept"):
        assert any(each.what == what and "alone for" in each.label for each in changes), changes
