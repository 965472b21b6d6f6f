"""Tests of policies and kernels in one process: `run` and `check_kernel`."""

from hocket.testing.kernels import check_kernel
from hocket.testing.policies import Result, run, trace

__all__ = ["Result", "check_kernel", "run", "trace"]
