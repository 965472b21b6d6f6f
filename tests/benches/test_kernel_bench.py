"""The benchmark of kernels, at sizes that take no time."""

import pytest

from benches.kernels import KERNELS, measure
from hocket import UsageError, _native

pytestmark = pytest.mark.tools


def test_every_row_runs():
    """A row whose kernel was renamed would end the verb in the middle of its table."""
    rates = list(measure(footprints_bytes=(64 << 10,), rounds=1))
    assert [rate.name for rate in rates] == [kernel.name for kernel in KERNELS]
    assert all(rate.of_bandwidth > 0 for rate in rates)


def test_sums_of_several_are_right():
    """The benchmark could be fast because it does not do what it says."""
    sources = [bytes([value] * 100) for value in (1, 2, 250)]
    total = bytearray(100)
    _native.repeat_kernel("sum_many.u8", sources, [total], [], 2)
    assert total == bytes([253] * 100)


def test_unknown_kernels_are_named():
    """A slip in a name would be measured as something else."""
    with pytest.raises(UsageError, match=r"sum\.f31"):
        _native.repeat_kernel("sum.f31", [bytes(4)], [bytearray(4)], [], 1)
