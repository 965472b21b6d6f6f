"""Statistics that sessions record of each step for policies, and warnings about non-finite gradients."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence

from hocket import _native
from hocket.training.memory.buckets import Launch, LoadedBucket
from hocket.training.memory.framework import Framework
from hocket.training.memory.values import squared_norm
from hocket.training.programs.source import ProgramSource


class Steps:
    """Seconds between the ends of steps, and bytes sent in them; nothing is recorded without a timer."""

    def __init__(self, engine: _native.Engine, source: ProgramSource) -> None:
        self._engine, self._source = engine, source
        self._ended_s: float | None = None
        self._sent = engine.bytes_sent()

    def note(self, given: Sequence[LoadedBucket] = (), framework: Framework | None = None) -> None:
        """Record the statistics of a step that ends. `given`: whole gradients that a framework's optimizer is given."""
        if self._source.timer is None:
            return
        if framework is not None and given and self._source.timer.wants_norm():
            norm = math.sqrt(sum(squared_norm(bucket, framework) for bucket in given))
            self._source.record("gradient_norm", norm)
        now_s, before_s = time.perf_counter(), self._ended_s
        self._ended_s = now_s
        sent = self._engine.bytes_sent()
        if before_s is not None:
            step_s = now_s - before_s
            self._source.record("step_time", step_s)
            self._source.record("bytes", sum(sent) - sum(self._sent))
            for rank, (now, before) in enumerate(zip(sent, self._sent, strict=True)):
                if now > before:
                    self._source.record(f"throughput.{rank}", 8 * (now - before) / step_s)
        self._sent = sent


def warn_of_non_finite(
    engine: _native.Engine, launches: Sequence[Launch], *, who: str, counted_in: str, hint: str = ""
) -> bool:
    """Warn with a RuntimeWarning of the first gradient in which the engine has found NaN or infinity; return whether there was one.
    `counted_in`: the unit in which the warning counts launches of a bucket's program."""
    of_program = {launch.program: launch for launch in launches}
    for program, instance, element in engine.non_finite():
        if program in of_program:
            name = of_program[program].compiled.name_of(element)
            warnings.warn(
                f"{who}: the gradient of `{name}` has NaN or infinity in {counted_in} {instance}; said once.{hint}",
                RuntimeWarning,
                stacklevel=3,
            )
            return True
    return False
