"""How much of a step's bytes leaves before its last gradient is made: the row `overlap` of `python -m benches frameworks`."""

from statistics import fmean

import pytest

from benches.frameworks.measured import balanced_samples
from benches.frameworks.overlap import CLUSTER, TURNS, WORLD, shares_before_the_last_gradient, traced


@pytest.mark.timing
def test_gradients_leave_while_backward_computes(tmp_path):
    """Communication would begin when computation ends, as without Hocket."""
    found = traced(CLUSTER, "layers", TURNS, tmp_path, samples=balanced_samples(CLUSTER))
    shares = [fmean(shares_before_the_last_gradient(found, rank)) for rank in range(WORLD)]
    assert min(shares) >= 0.6, shares
