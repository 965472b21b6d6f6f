"""Do two lists rank the same things alike?"""

from __future__ import annotations

from typing import Any

import numpy as np


def spearman(one: Any, other: Any) -> float:
    """Correlation of ranks; equal values share the mean of theirs.

    >>> round(spearman([1.0, 2.0, 3.0], [10.0, 30.0, 20.0]), 3)
    0.5
    """
    ranked = [_ranks(np.asarray(each, dtype=float)) for each in (one, other)]
    return float(np.corrcoef(ranked[0], ranked[1])[0, 1])


def _ranks(values: Any) -> Any:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[places]
