"""End of a job as its launcher tells it: which ranks failed, in which order, and how."""

from __future__ import annotations

import contextlib
import shlex
import signal
from dataclasses import dataclass

from hocket.errors import PeerError
from hocket.members.roster import Ended
from hocket.start.processes import SIGNALLED, Process

LAST_LINES_SHOWN = 8
NOT_REACHED, NOT_FOUND = 255, 127
"""Exit codes of ssh, and of shells."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Rank that failed. `code` is 128 + N for signal N. `condemned`: the launcher killed it, whatever it would have died of.

    `ended`: the launcher ended it, as the job had failed. `accusers`: ranks that did not go on because of it; `why`: their reason.
    `reach`: command that runs something on its host, if that is another one.
    """

    rank: int
    host: str
    code: int
    last_lines: tuple[str, ...]
    condemned: bool = False
    ended: bool = False
    accusers: tuple[int, ...] = ()
    why: str | None = None
    reach: str = ""

    @property
    def how(self) -> str:
        """Exit code or signal of the rank, or the launcher's reason for a signal."""
        if self.condemned:
            return f"the others went on without it, and it was killed (exit code {self.code})"
        if self.accusers and (self.ended or self.code == 0):
            who = f"rank{'s' * (len(self.accusers) > 1)} {', '.join(map(str, self.accusers))}"
            what = REPROACHES.get(self.why or "", "did not go on because of it")
            end = "it was ended" if self.ended else "it ended in order"
            return f"{who} {what}, and {end} (exit code {self.code})"
        if self.code > SIGNALLED:
            with contextlib.suppress(ValueError):
                return f"{signal.Signals(self.code - SIGNALLED).name} (exit code {self.code})"
        return f"exit code {self.code}"

    def __str__(self) -> str:
        last_words = "".join(f"\n    {line}" for line in self.last_lines[-LAST_LINES_SHOWN:])
        return (
            f"rank {self.rank} on {self.host} failed: {self.how}"
            + (f"; its last words:{last_words}" if last_words else "")
            + self._hint()
        )

    def _hint(self) -> str:
        """Return a line on hosts that are not reached, or lack a command, as the exit codes of ssh and of shells say."""
        if not self.reach or self.ended or self.code not in (NOT_REACHED, NOT_FOUND):
            return ""
        if self.code == NOT_REACHED:
            return f"\nhint: {NOT_REACHED} is what ssh exits with where it does not reach a host: try `{self.reach} true`"
        return f"\nhint: {NOT_FOUND} says that a command is not there: try `{self.reach} python3`, and see `hocket run --python`"

    def error(self, message: str) -> PeerError:
        """Return the error of the whole job, ready to raise."""
        return PeerError(message, rank=self.rank, host=self.host, why="failed")


REPROACHES = {
    "silent": "heard nothing of it any more",
    "timeout": "waited for it in vain",
    "left": "still needed it",
    "lost": "lost the connection to it",
}
"""Phrases about a rank at fault, by `PeerError.why`."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """End of a job: `failures` in the order in which they were observed, but first that of the rank at fault. `ended`: reason why
    an elastic job did not go on."""

    failures: tuple[Failure, ...]
    ended: Ended | None = None

    @property
    def code(self) -> int:
        """Exit code of the launcher: the code of the first failed rank that ended by itself; 1 if the job did not end with its
        scripts; else 0."""
        codes = [each.code for each in sorted(self.failures, key=lambda each: each.ended) if each.code != 0]
        return codes[0] if codes else int(bool(self.failures) or self.ended is not None)


def failure_of(process: Process, *, ended: bool = False) -> Failure:
    """Return the failure of a process that has ended. `ended`: it ran when the launcher ended all."""
    lines = tuple(line.decode(errors="replace") for line in process.err.last)
    # If the launcher is slow, neighbours have ended a running rank before it could.
    by_us = process.left_behind or (process.condemned and process.obeyed)
    return Failure(
        rank=process.rank,
        host=process.host,
        code=process.code or 0,
        last_lines=lines,
        condemned=by_us and process.code == SIGNALLED + signal.SIGKILL,
        ended=ended,
        reach=shlex.join(process.spec.prefix) if process.spec.remote else "",
    )
