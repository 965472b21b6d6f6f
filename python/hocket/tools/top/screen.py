"""Screen of `hocket top`: the table, refreshed once a second, and what keys do to it."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from hocket.errors import RendezvousError, StoreGoneError
from hocket.job.live.observer import Observer, View
from hocket.job.live.stack import ANSWER_S, unasked
from hocket.tools.top.table import ORDERS, Order, rendered, sorted_ranks

LINES = 9
"""Lines of the screen beside the rows of ranks."""
HELP = "  ".join(
    ["q quit", "↑ ↓ select", "p Python stack", *(f"{each.key} by {each.name}" for each in ORDERS)]
)


ENDED = "the job has ended"
UP, DOWN, ESCAPE = "up", "down", "escape"
SEQUENCES = {b"\x1b[A": UP, b"\x1bOA": UP, b"\x1b[B": DOWN, b"\x1bOB": DOWN, b"\x1b": ESCAPE}
READ_BYTES = 32


class Keys:
    """Keyboard of the terminal at standard input, as a context."""

    def __enter__(self) -> Keys:
        """Take the terminal."""
        self._file = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._file)
        tty.setcbreak(self._file)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Give the terminal back as it was."""
        termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def pressed(self, timeout_s: float) -> str | None:
        """Return the next key, a letter or one of the names above; None: none was pressed in time.

        EOFError: the terminal is gone.
        """
        ready, _, _ = select.select([self._file], [], [], max(0.0, timeout_s))
        if not ready:
            return None
        read = os.read(self._file, READ_BYTES)
        if not read:
            raise EOFError
        return SEQUENCES.get(read) or read[:1].decode(errors="replace")


@dataclass
class State:
    """What the user has chosen. `asked`: rank whose stack is wanted, how many it had given before, and since when; `instead`: what
    there is to see of it without its answer, once that is known."""

    order: Order = ORDERS[0]
    selected: int | None = None
    asked: tuple[int, int, float] | None = None
    instead: RenderableType | None = None

    def press(self, key: str, view: View, now_s: float) -> None:
        """Do what a key says."""
        for each in ORDERS:
            if each.key == key:
                self.order = each
        ranks = sorted_ranks(view, self.order)
        if not ranks:
            return
        if key in (UP, DOWN, "k", "j"):
            step = 1 if key in (DOWN, "j") else -1
            at = ranks.index(self.selected) + step if self.selected in ranks else 0
            self.selected = ranks[min(max(at, 0), len(ranks) - 1)]
        elif key == "p":
            rank = self.selected if self.selected in ranks else ranks[0]
            self.selected = rank
            self.asked, self.instead = (rank, view.ranks[rank].status.stacks, now_s), None
        elif key == ESCAPE:
            self.asked = None

    def stack(self, view: View, now_s: float) -> RenderableType | None:
        """Return the stack that was asked for, or what has become of it."""
        if self.asked is None or self.asked[0] not in view.ranks:
            return None
        rank, before, since_s = self.asked
        status = view.ranks[rank].status
        if status.stacks > before and status.stack is not None:
            return Text(
                f"Python stack of rank {rank} on {status.host}, innermost call last (Esc closes it)\n{status.stack}"
            )
        if self.instead is None and now_s - since_s > ANSWER_S:
            try:
                self.instead = Text(unasked(rank, view.ranks[rank]))
            except RendezvousError as error:
                self.instead = Text(str(error), style="red")
        if self.instead is not None:
            return self.instead
        return Text(f"asking rank {rank} for its Python stack …", style="dim")

    def wants(self, view: View | None) -> int | None:
        """Return the rank that is to be asked for its stack at the next look."""
        if self.asked is None:
            return None
        rank, before, _ = self.asked
        given = view is not None and rank in view.ranks and view.ranks[rank].status.stacks > before
        return None if given else rank


def watch(observer: Observer, console: Console, *, interval_s: float, title: str) -> str:
    """Show the job until the user quits or it ends; return what to say then.

    RendezvousError: it cannot be looked at. EOFError: the terminal is gone.
    """
    state = State()
    view = observer.look()
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_shown(view, state, console, title), refresh=True)
            next_s = time.monotonic() + interval_s
            while (key := keys.pressed(next_s - time.monotonic())) is not None:
                if key == "q":
                    return ""
                state.press(key, view, time.monotonic())
                live.update(_shown(view, state, console, title), refresh=True)
                if key == "p":
                    # Ask at once.
                    break
            try:
                view = observer.look(state.wants(view))
            except StoreGoneError:
                return ENDED
            if view.ended is not None:
                return f"{ENDED}: {view.ended}"


def _shown(view: View, state: State, console: Console, title: str) -> RenderableType:
    stack = state.stack(view, time.monotonic())
    room = console.size.height - LINES
    rows = max(3, room // 3 if stack is not None else room)
    table = rendered(view, state.order, rows_max=rows, selected=state.selected, title=title)
    return Group(table, *([stack] if stack is not None else []), Text(HELP, style="dim"))
