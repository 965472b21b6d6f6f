"""Buffers of a device: copies bring them to the host and back, and what cannot serve them refuses them by name."""

import numpy as np
import pytest

from hocket import reference
from hocket._native import Builder, PassOptions, Program
from hocket.errors import ProgramError
from tests.support.engines import Job

ELEMENTS = 5
ALL = (0, 0, ELEMENTS), (1, 0, ELEMENTS)


def staged():
    """Both ranks' gradients are on devices; they are summed in host memory."""
    builder = Builder("staged", 2)
    device, host = ALL
    for rank in (0, 1):
        builder.buffer(rank, "gradients", "f32", ELEMENTS, "bound", "device")
        builder.buffer(rank, "staged", "f32", ELEMENTS, "scratch")
        builder.copy(rank, device, host, casts=False, source=None)
    builder.recv(0, host, 1, 0, wire="f32", reduce="sum", count=None, source=None)
    builder.send(0, host, 1, 1, wire="f32", count=None, source=None)
    builder.send(1, host, 0, 0, wire="f32", count=None, source=None)
    builder.recv(1, host, 0, 1, wire="f32", reduce=None, count=None, source=None)
    for rank in (0, 1):
        builder.copy(rank, host, device, casts=False, source=None)
    builder.ensure_all_reduce(0, [0, 1], "sum", 1.0)
    return builder.finish()


def test_staged_gradients_are_summed():
    """What is proven of a program that stages would not be what it does."""
    program = staged()
    program.verify()
    assert [space for *_, space in program.buffers(0)] == ["device", "host"]
    assert str(Program.parse(str(program))) == str(program)
    buffers = [[np.full(ELEMENTS, rank + 1, np.float32)] for rank in (0, 1)]
    reference.run(program, buffers)
    assert all(each.tolist() == [3] * ELEMENTS for (each,) in buffers)


def test_fusing_keeps_the_copies():
    """A message in place of a copy would be one out of a device, which no link moves."""
    compiled = staged().compiled(PassOptions(chunk_bytes=1 << 20))
    compiled.verify()
    assert [op["op"] for op in compiled.ops(1)] == ["copy", "send", "recv", "copy"]


def test_the_native_executor_has_no_memory_of_a_device():
    """Device addresses would be read as memory of the host."""
    builder = Builder("scratch", 2)
    for rank in (0, 1):
        builder.buffer(rank, "gradients", "f32", ELEMENTS, "scratch", "device")
    with (
        Job(["a", "a"]) as job,
        pytest.raises(ProgramError, match="buffer `gradients` of rank 0 is in device memory"),
    ):
        job.engines[0].load(builder.finish(), {}, priority=0, label="scratch")


def test_a_space_that_there_is_not():
    """A typing mistake would make a buffer of the host."""
    with pytest.raises(ProgramError, match="no memory space `moon`"):
        Builder("x", 1).buffer(0, "x", "f32", 1, "bound", "moon")
