"""PyTorch's own tests of `torch.distributed`, for the backend `hocket`: `make test-torch`.

They come in PyTorch's wheel and ask the environment for the backend; what a backend offers they look up in tables of names, which
ours is added to here. Many are for one backend by name, though: with SUITE_AS=gloo or mpi, those that are for that one run, too.
What runs is our backend under any name. `report.py` says what was skipped under every name, and why.
"""
# ruff: noqa: E402  # the environment is read when the tests are imported

import os
import tempfile

import torch

WORLD = 4
NAME = os.environ.get("SUITE_AS", "hocket")

os.environ["BACKEND"] = NAME
os.environ["WORLD_SIZE"] = str(WORLD)
os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")

from torch.testing._internal import common_distributed

for feature in ("ddp", "subgroup", "plugin"):
    common_distributed.DistTestCases.backend_feature[feature] |= {"hocket", NAME}

from torch.testing._internal.distributed import distributed_test

# The tests have chosen by now which of them are for NAME.
distributed_test.BACKEND = "hocket"


class TestHocket(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """All of them."""

    def setUp(self):
        super().setUp()
        # Not spawned: importing PyTorch in each would take most of the time.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


del distributed_test.TestDistBackend  # pytest would collect the base, too
