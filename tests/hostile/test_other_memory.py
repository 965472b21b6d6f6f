"""Memory that is not registered, on one host: read and written where it lies if the kernel lets all ranks, else by slots."""

import io
import shutil
import sys

import pytest

from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch

SCRIPT = """
import os, signal, sys
import numpy as np
from hocket import _native
from hocket.job.rendezvous import join

ELEMENTS = (1, 1000, 300_001, 1_500_000)
dies = sys.argv[1] == "dies"

def given(rank, elements):
    return (np.arange(elements) % 61 + rank).astype(np.float32)

with join() as job:
    engine = job.engine()
    area = engine.allocate(_native.HostGroup.AREA_BYTES)
    offsets = job.store.gather("area", job.rank, job.world, area.arena_offset, 20)
    group = _native.HostGroup(
        engine, area, members=list(enumerate(offsets)), timeout_s=10.0, flat_bytes=(4096, 4096)
    )
    total = [sum(given(rank, elements) for rank in range(job.world)) for elements in ELEMENTS]
    assert group.other_memory() is None
    for turn in range(6):
        for elements, expected in zip(ELEMENTS, total, strict=True):
            values = given(job.rank, elements)
            group.all_reduce((values.ctypes.data, values.nbytes), "sum", "f32")
            assert (values == expected).all(), elements
            root = (turn + elements) % job.world
            values = given(job.rank, elements)
            group.reduce((values.ctypes.data, values.nbytes), "sum", "f32", root)
            assert (values == (expected if job.rank == root else given(job.rank, elements))).all(), elements
        if dies and turn == 3 and job.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    print("is right:", group.other_memory(), flush=True)
    engine.close()
"""


def run(how, prefixes):
    out = io.BytesIO()
    ranks = [ProcessSpec(argv=[sys.executable, "-c", SCRIPT, how], prefix=prefix) for prefix in prefixes]
    outcome = launch(ranks, settings=Settings(timeout_s=20, start_timeout_s=20), out=out, err=out)
    return outcome, out.getvalue().decode()


def test_reductions_where_the_kernel_lets_us():
    """A rank's gradients would be wrong, or another's memory be overwritten; or two copies be made where one is enough."""
    outcome, said = run("stays", [()] * 3)
    assert outcome.code == 0, said
    assert said.count("is right: ") == 3
    told = {line.partition("is right: ")[2] for line in said.splitlines()}
    allowed = "read and written where it lies"
    # Where this machine's kernel refuses, all ranks must have gone the other way.
    assert told == {allowed} or all(each.startswith("copied through shared slots: rank ") for each in told)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv here to take a rank's capabilities")
def test_reductions_where_it_refuses_one_rank():
    """In containers without the capability, ranks would fail, or some read memory while others wait at slots."""
    powerless = ("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")
    outcome, said = run("stays", [(), powerless, ()])
    assert outcome.code == 0, said
    told = [line.partition("is right: ")[2] for line in said.splitlines() if "is right: " in line]
    assert len(told) == 3
    assert said.count("tensors are copied through shared slots instead") == 1, "a line in the log"
    assert all(
        each.startswith("copied through shared slots: rank 1 may not use the memory of ") for each in told
    )


def test_a_rank_that_dies_is_named():
    """The others would read the memory of a process that is gone, and say so instead of who died."""
    outcome, said = run("dies", [()] * 3)
    assert [failure.rank for failure in outcome.failures][:1] == [1]
    assert "rank 1" in said
    assert said.count("PeerError") >= 2, said
    assert "No such process" not in said
