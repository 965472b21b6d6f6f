"""PyTorch's own tests of `torch.distributed`, for the backend `hocket`: `make test-torch`.

They come in PyTorch's wheel and ask the environment for the backend; what a backend offers they look up in tables of names, which
ours is added to here. Many are for one backend by name, though: with SUITE_AS=gloo ours takes that name, and with SUITE_AS=mpi
those that are for MPI run, too. `report.py` says what was skipped under every name, and why.
"""
# ruff: noqa: E402  # the environment is read when the tests are imported

import os
import tempfile

import torch
import torch.distributed as dist

from hocket.torch.backend.creation import create

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

# The profiler's events of a collective are written by PyTorch's own backends, in C++.
for profiled in (
    distributed_test.PROFILING_SUPPORTED_BACKENDS,
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS,
):
    profiled[:] = [name for name in profiled if name != NAME]
if NAME == "mpi":
    # PyTorch starts that one by itself, whatever is registered. The tests have chosen by now which of them are for it.
    distributed_test.BACKEND = "hocket"
else:
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])


NAMED = "looks for the name within; run under Gloo's"
NOT_OURS = {
    "gloo": {
        "test_monitored_barrier_gloo_rank_0_timeout": "Gloo's words for a timeout of zero; ours names who did not come",
        "test_ddp_logging_data_cpu": "looks for the name, which is `hocket` under any; run under that",
    },
    "mpi": {
        "test_accumulate_gradients_no_sync": NAMED,
        "test_accumulate_gradients_no_sync_allreduce_hook": NAMED,
        "test_accumulate_gradients_no_sync_allreduce_with_then_hook": NAMED,
        "test_accumulate_gradients_no_sync_grad_is_view": NAMED,
    },
}
"""What ours cannot pass under another's name, and why."""


class TestHocket(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        why = NOT_OURS.get(NAME, {}).get(self._testMethodName)
        if why is not None:
            self.skipTest(why)
        # Not spawned: importing PyTorch in each would take most of the time.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


del distributed_test.TestDistBackend  # pytest would collect the base, too
