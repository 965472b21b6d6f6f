"""Ranks that do not train take part in one training after the other: where a model is distributed again, they end its training
when the workers do, and rest.

Worker 0 then sends each of them one byte, by which it goes on with the next training, or ends when the job does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from hocket import _native
from hocket.errors import PeerError
from hocket.job.rendezvous import Job
from hocket.training.process import Process, reporting

NEXT, END = 0, 1
"""Values of the byte."""

TAG = 0
PATIENCE_S = 1e9
"""Time that a rank rests: as long as scripts do other things. The wait ends when a rank is lost."""


def begin_training(process: Process) -> int:
    """Begin a training with ranks that do not train, which may rest; return its number. All workers call this."""
    if process.trainings:
        _wake(process, NEXT)
    process.trainings, process.serves = process.trainings + 1, True
    return process.trainings - 1


def end_training(process: Process) -> None:
    """Wait until ranks that do not train have ended the training, too. All workers call this; the job goes on."""
    _meet(process.everyone)
    process.serves = False
    if process.trainings == 1:
        process.also_close(lambda: _dismiss(process))


def take_part(process: Process, train: Callable[[int], bool]) -> None:
    """Take part in one training after the other until the job ends; a failure is reported to the job with its reason. `train`:
    takes part in the training of that number, and returns whether the job goes on."""
    job = process.everyone
    if job.settings.profile_out is None:  # ranks that are profiled exchange nothing
        with reporting(process):
            # All ranks connect at once: workers must not wait for us here while we wait for what they say.
            engine, training = process.engine, 0
            while train(training) and _next_training(job, engine):
                training += 1
    process.close()


def _next_training(job: Job, engine: _native.Engine) -> bool:
    """Meet the workers at the end of a training, and rest. Return whether another one begins; PeerError: a rank is lost."""
    _meet(job)
    memory = engine.allocate(1)
    engine.wait_message(engine.receive(0, TAG, memory, 1), PATIENCE_S)
    return memoryview(memory)[0] == NEXT


def _meet(job: Job) -> None:
    # Programs of the next training may have the numbers of this one's, which nobody has loaded any more.
    job.store.barrier("rest", job.rank, job.world, job.settings.timeout_s)


def _dismiss(process: Process) -> None:
    """Let ranks that rest end, as the job does. A job that has failed was reported already."""
    if not process.serves:
        with contextlib.suppress(PeerError):
            _wake(process, END)


def _wake(process: Process, value: int) -> None:
    job, engine = process.everyone, process.engine
    if job.rank != 0:
        return
    memory = engine.allocate(1)
    memoryview(memory)[0] = value
    sent = [engine.send(rank, TAG, memory, 1) for rank in range(process.job.world, job.world)]
    for number in sent:
        engine.wait_message(number, job.settings.timeout_s)
