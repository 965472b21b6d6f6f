"""Programs of a job's first ranks alone, as those that train beside parameter servers have."""

import numpy as np
import pytest

from hocket.artefacts.plan import AllReduce
from hocket.errors import ProgramError
from hocket.planning.compile import all_reduce_program
from tests.support.engines import TIMEOUT_S, Job


def test_the_first_ranks_run_a_program_of_their_own():
    """Workers could not reduce anything among themselves, or a server would take part in it."""
    program = all_reduce_program(
        world=2, elements=4, dtype="f32", op="sum", scale=1.0, route=AllReduce(algorithm="ring")
    )

    def work(engine, rank):
        memory = engine.allocate(16)
        values = np.frombuffer(memoryview(memory), np.float32)
        values[:] = rank + 1
        if rank == 2:
            with pytest.raises(ProgramError, match="made for 2 ranks, loaded by rank 2 of a world of 3"):
                engine.load(program, {0: (memory, 0)}, priority=0, label="sum")
            return None
        number = engine.load(program, {0: (memory, 0)}, priority=0, label="sum")
        engine.launch(number)
        engine.wait(number, TIMEOUT_S)
        return values.tolist()

    with Job(["a", "b", "c"]) as job:
        assert job.each(work) == [[3.0] * 4, [3.0] * 4, None]
