"""Test if two series of step times differ, or only fluctuate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

SCALE = 1.4826
"""Standard deviation over the median of deviations, for a normal distribution."""

MEDIAN = 1.2533
"""Standard error of a median over that of a mean, for a normal distribution."""


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation, estimated by the median of deviations: a rare step that takes much longer does not count.

    >>> spread([1.0, 1.0, 1.0, 9.0])
    0.0
    """
    middle = median(values)
    return SCALE * median(abs(each - middle) for each in values)


def own_error(values: Sequence[float]) -> float:
    """Return the standard error of the values' median.

    >>> round(own_error([0.9, 1.0, 1.1] * 3), 3)
    0.062
    """
    return MEDIAN * spread(values) / math.sqrt(len(values))


def error(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the standard error of the difference of two series' medians.

    >>> round(error([0.9, 1.0, 1.1] * 4, [1.9, 2.0, 2.1] * 4), 3)
    0.076
    """
    return math.hypot(own_error(a), own_error(b))
