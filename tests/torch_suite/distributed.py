"""PyTorch's own tests of `torch.distributed`, for the backend `hocket`: `make test-torch`.

They come in PyTorch's wheel and ask the environment for the backend; what a backend offers they look up in tables of names, which
ours is added to here. Many are for one backend by name, though: with SUITE_AS=gloo ours takes that name, and with SUITE_AS=mpi
those that are for MPI run, too. `report.py` says what was skipped under every name, and why.

With SUITE_DEVICE=hostile the tests run on the tests' own device, of which each rank has one: in their source the word `cuda`
becomes `hostile`, be it a module, a method, a type of device or a feature.
"""
# ruff: noqa: E402  # the environment is read when the tests are imported

import functools
import importlib
import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist

from hocket.torch.backend.creation import create

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.torch import hostile

WORLD = 4
NAME = os.environ.get("SUITE_AS", "hocket")
DEVICE = os.environ.get("SUITE_DEVICE", "")

os.environ["BACKEND"] = NAME
os.environ["WORLD_SIZE"] = str(WORLD)
os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")

from torch.testing._internal import common_distributed

FEATURES = common_distributed.DistTestCases.backend_feature
for feature in ("ddp", "subgroup", "plugin"):
    FEATURES[feature] |= {"hocket", NAME}


def on_device() -> ModuleType:
    """PyTorch's tests, with another word for `cuda`."""
    assert hostile.NAME == DEVICE
    module = hostile.loaded()
    module.amp = sys.modules[f"{module.__name__}.amp"] = ModuleType("amp")
    module.amp.autocast = functools.partial(torch.autocast, DEVICE)
    module.amp.GradScaler = functools.partial(torch.amp.GradScaler, DEVICE)
    FEATURES[DEVICE] = FEATURES["cuda"]
    # Whether NCCL is there, how old it is, and how many of CUDA's devices.
    for asked in ("requires_nccl_version", "require_n_gpus_for_nccl_backend", "nccl_skip_if_lt_x_gpu"):
        setattr(common_distributed, asked, lambda *_: lambda test: test)
    spec = importlib.util.find_spec(TESTS)
    made = sys.modules[TESTS] = importlib.util.module_from_spec(spec)
    source = re.sub(r"\bcuda\b", DEVICE, Path(spec.origin).read_text())
    exec(compile(source, spec.origin, "exec"), vars(made))  # noqa: S102  # PyTorch's own, as it is installed
    return made


TESTS = "torch.testing._internal.distributed.distributed_test"
distributed_test = on_device() if DEVICE else importlib.import_module(TESTS)

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
    # On a device some make groups of NCCL's within, whatever theirs is of.
    for each in {NAME, "nccl"} if DEVICE else {NAME}:
        dist.Backend.register_backend(
            each, create, extended_api=True, devices=["cpu", DEVICE] if DEVICE else ["cpu"]
        )


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
ITSELF = "the backend refuses a message of a rank to itself, which NCCL has within a batch"
HANGS = "NCCL's words for a wait that is over; ours say how long it was"
NOT_ON_DEVICE = {
    "test_batch_isend_irecv_nccl": ITSELF,
    "test_batch_isend_irecv_self_nccl": ITSELF,
    "test_ddp_hook_parity_powerSGD": "PyTorch's hook frees a tensor that a stream of its future may still read, and gets NaN here",
    "test_ddp_logging_data_gpu": "PyTorch takes the times of steps on the CPU and on CUDA alone",
    "test_ddp_native_mixed_precision_ignored_params": "PyTorch marks parameters; an extension's device gets others, without marks",
    "test_ddp_profiling_torch_profiler": "looks for events that PyTorch's own backend of NCCL writes",
    "test_monitored_barrier_allreduce_hang": HANGS,
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": HANGS,
    "test_nccl_high_priority_stream": "makes PyTorch's own group of NCCL",
    "test_sparse_all_reduce_sum_cuda": "the device has no sparse tensors, and the backend adds those of the CPU alone",
}
"""Tests that cannot pass on the device under any name, with the reason."""


class TestHocket(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        refused = NOT_OURS.get(NAME, {}) | (NOT_ON_DEVICE if DEVICE else {})
        why = refused.get(self._testMethodName)
        if why is not None:
            self.skipTest(why)
        # Not spawned: importing PyTorch in each would take most of the time.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank, *where, **named):
        if DEVICE:
            hostile.loaded(seed=rank)
        super()._run(rank, *where, **named)


del distributed_test.TestDistBackend  # pytest would collect the base, too
