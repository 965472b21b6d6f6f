"""A training in which one rank fails in one of many ways: `python -m benches.culprits.rank KIND CULPRIT DIRECTORY`.

The culprit fails after some good steps. DIRECTORY gets the ranks' `Notes`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

import hocket.torch as hk
from benches.culprits import memory
from benches.culprits.cases import STEPS, WRONG_AT
from benches.culprits.notes import Notes

PAUSE_S = 0.01
"""Pause in each step, so that the others still train at the failure."""
FOR_EVER_S = 900


class Raises(torch.nn.Module):
    """Module that raises in the given place."""

    where = ""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if self.where == "forward":
            raise ValueError("bad batch")
        if self.where == "backward":
            values.register_hook(self.in_backward)
        return values

    def in_backward(self, _: torch.Tensor) -> NoReturn:
        """Raise, as a hook of these values."""
        raise ValueError("bad gradient")


def raise_in_step(*_: Any) -> NoReturn:
    """Raise, as a hook of the optimizer."""
    raise ValueError("bad step")


def raise_in_loader() -> NoReturn:
    raise ValueError("bad sample")


def sleep_in_native_code() -> None:
    """Wait and hold the interpreter: no other Python thread runs."""
    # A read goes on after a signal, by which the launcher asks for the stack.
    nothing, _writer = os.pipe()
    ctypes.PyDLL(None).read(nothing, ctypes.create_string_buffer(1), 1)


def loop_for_ever() -> NoReturn:
    """Loop in Python: other threads run."""
    while True:
        pass


def raise_system_exit() -> NoReturn:
    raise SystemExit(4)


def end_by(number: int) -> Callable[[], None]:
    """Make a function that sends a signal to this process."""
    return lambda: os.kill(os.getpid(), number)


ENDS: dict[str, Callable[[], object]] = {
    "loader": raise_in_loader,
    "sys.exit(3)": lambda: sys.exit(3),
    "raise SystemExit(4)": raise_system_exit,
    "os._exit(5)": lambda: os._exit(5),
    "SIGKILL": memory.kill_from_outside,
    "SIGSEGV": end_by(signal.SIGSEGV),
    "out of memory": memory.run_out,
    "SIGSTOP": end_by(signal.SIGSTOP),
    "loop": loop_for_ever,
    "native": sleep_in_native_code,
    "late loader": lambda: time.sleep(FOR_EVER_S),
    "full disk": lambda: torch.save(torch.ones(1 << 16), "/dev/full"),
    "cut cable": lambda: None,  # whoever has the cable cuts it
}
"""Actions between two steps, by kind. Other kinds act in a step, or in the script around it."""


def call_all_reduce() -> None:
    dist.all_reduce(torch.ones(5))


def call_broadcast() -> None:
    dist.broadcast(torch.ones(5), 0)


def call_of_other_shape() -> None:
    dist.all_reduce(torch.ones(7))


CALLS: dict[str, tuple[Callable[[], None], ...]] = {
    "other shape": (call_of_other_shape, call_broadcast),
    "other op": (call_broadcast, call_broadcast),
    "other order": (call_broadcast, call_all_reduce),
}
"""Collectives of the culprit, by kind; the others reduce and broadcast."""


class Training:
    def __init__(self, kind: str, culprit: int, notes: Notes) -> None:
        torch.manual_seed(0)
        self.kind, self.culprit, self.notes = kind, culprit, notes
        self.raises = Raises()
        width = 8
        if kind == "other model":
            notes.await_observer()
        if kind == "other model" and notes.rank == culprit:
            width = 9
            notes.goes_wrong()
        model = torch.nn.Sequential(torch.nn.Linear(8, width), self.raises, torch.nn.Linear(width, 4))
        if kind == "other buffer":
            model.register_buffer("seen", torch.zeros(5))
        if kind in CALLS:
            dist.init_process_group("hocket")
        self.model, self.optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.rank = hk.rank(self.model)

    def run(self) -> None:
        """Train to the end, or until this rank fails."""
        generator = torch.Generator().manual_seed(self.rank)
        for step in self._steps():
            if self.kind in CALLS:
                wrong = self.rank == self.culprit and step == WRONG_AT
                for call in CALLS[self.kind] if wrong else (call_all_reduce, call_broadcast):
                    call()
            loss = self.model(torch.randn(4, 8, generator=generator)).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.notes.stepped(hk.world(self.model))
            time.sleep(PAUSE_S)

    def _steps(self) -> Iterator[int]:
        for step in range(STEPS):
            if step == WRONG_AT:
                self.notes.await_observer()
            if self.rank == self.culprit and step == WRONG_AT:
                self.notes.goes_wrong()
                if self.kind == "early end":
                    return
                self._go_wrong()
            yield step

    def _go_wrong(self) -> None:
        if self.kind in ENDS:
            ENDS[self.kind]()
        elif self.kind == "caught":
            raise ValueError("bad configuration")
        elif self.kind == "in step":
            self.optimizer.register_step_pre_hook(raise_in_step)
        elif self.kind == "other buffer":
            self.model.register_buffer("seen", torch.zeros(7))
        elif self.kind in ("forward", "backward"):
            self.raises.where = self.kind


def train(kind: str, culprit: int, directory: Path) -> None:
    notes = Notes(directory, int(os.environ.get("HOCKET_RANK") or os.environ["RANK"]))
    try:
        Training(kind, culprit, notes).run()
    except BaseException as error:
        notes.caught(error)
        raise


def main() -> None:
    kind, culprit, directory = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    try:
        train(kind, culprit, directory)
    except Exception as error:
        if kind != "caught":
            raise
        # Like command-line frameworks, on all ranks.
        sys.stderr.write(f"Error executing job: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
