"""Record of a process's latest collectives, for dumps (`hocket.job.dumps`); there is one only where dumps are wanted.

Messages are left out: `fr_trace` takes one for a collective that most ranks of the group do not come to. Recording a call takes
about 6 µs, most of which goes to the caller's stack.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import CodeType

import torch

from hocket.job.dumps.calls import Call, Calls, Frame, Group, State, Tensor

CALLS_MAX = 2000
"""Number of calls that are kept, as by PyTorch's own recorder."""
FRAMES_MAX = 24
OWN = __name__.rpartition(".")[0] + "."
"""Start of the names of modules whose frames are no caller's."""


class Entry:
    """One call, from when it is made."""

    __slots__ = (
        "created_ns",
        "ended_ns",
        "frames",
        "group",
        "inputs",
        "number",
        "outputs",
        "record",
        "started_ns",
        "timeout_s",
        "what",
    )

    def __init__(
        self,
        group: GroupRecord,
        numbers: tuple[int, int],
        what: str,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        *,
        timeout_s: float,
    ) -> None:
        """Note the call. `numbers`: among all calls, and among those of the group. Tensors are not kept."""
        self.group, self.what = group, what
        self.record, self.number = numbers
        self.inputs = [(each.shape, each.dtype) for each in inputs]
        self.outputs = [(each.shape, each.dtype) for each in outputs]
        self.timeout_s = timeout_s
        self.created_ns = time.monotonic_ns()
        self.started_ns = self.ended_ns = 0
        self.frames = _stack()

    def begin(self) -> None:
        """Note that the call waits for others from now on."""
        self.started_ns = time.monotonic_ns()

    def end(self) -> None:
        """Note that it has ended well."""
        self.ended_ns = time.monotonic_ns()

    @property
    def state(self) -> State:
        """How far the call has come."""
        if self.ended_ns:
            return "completed"
        return "started" if self.started_ns else "scheduled"

    def call(self) -> Call:
        """Return the call as data."""
        return Call(
            record=self.record,
            group=self.group.name,
            number=self.number,
            what=self.what,
            inputs=_tensors(self.inputs),
            outputs=_tensors(self.outputs),
            state=self.state,
            created_ns=self.created_ns,
            started_ns=self.started_ns or None,
            ended_ns=self.ended_ns or None,
            timeout_s=self.timeout_s,
            frames=tuple(_frame(*each) for each in self.frames),
        )


class Recorder:
    """Latest calls of all groups of this process."""

    def __init__(self) -> None:
        """Begin without calls."""
        self.entries: deque[Entry] = deque(maxlen=CALLS_MAX)
        self._groups: dict[str, GroupRecord] = {}
        self.records = itertools.count()

    def group(self, name: str, describe: Callable[[], str], ranks: Sequence[int]) -> GroupRecord:
        """Return the record of a group whose calls begin. `describe` returns its description; `ranks`: in the job, by its own."""
        self._groups[name] = record = GroupRecord(self, name, describe, ranks)
        return record

    def calls(self) -> Calls:
        """Return the groups and calls as data."""
        entries = sorted(self.entries.copy(), key=lambda each: each.record)
        groups = [
            Group(name=each.name, text=each.describe() or "undefined", ranks=each.ranks)
            for each in self._groups.values()
        ]
        return Calls(groups=tuple(groups), calls=tuple(each.call() for each in entries))


class GroupRecord:
    """Calls of one group."""

    def __init__(
        self, recorder: Recorder, name: str, describe: Callable[[], str], ranks: Sequence[int]
    ) -> None:
        """Begin without calls; arguments are those of `Recorder.group`."""
        self.name, self.describe, self.ranks = name, describe, tuple(ranks)
        self._recorder = recorder
        self._numbers = itertools.count(1)

    def called(
        self,
        what: str,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        timeout_s: float,
    ) -> Entry:
        """Record a call that is made now."""
        numbers = next(self._recorder.records), next(self._numbers)
        entry = Entry(self, numbers, what, inputs, outputs, timeout_s=timeout_s)
        self._recorder.entries.append(entry)
        return entry


def _stack() -> list[tuple[CodeType, int]]:
    frame, found = sys._getframe(1), list[tuple[CodeType, int]]()
    while frame is not None and len(found) < FRAMES_MAX:
        if not frame.f_globals.get("__name__", "").startswith(OWN):
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back  # type: ignore[assignment]
    return found


def _frame(code: CodeType, at: int) -> Frame:
    line = next((line for start, end, line in code.co_lines() if start <= at < end and line is not None), 0)
    return getattr(code, "co_qualname", code.co_name), code.co_filename, line


def _tensors(found: Sequence[tuple[torch.Size, torch.dtype]]) -> tuple[Tensor, ...]:
    return tuple((tuple(shape), str(dtype).removeprefix("torch.")) for shape, dtype in found)
