"""Log lines and trace records of changes of an elastic job's members, and of its goodput."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec.structs import asdict, replace

from hocket import _native
from hocket.artefacts.goodput import Goodput
from hocket.artefacts.members_change import MembersChange
from hocket.artefacts.trace import append_members_change, members_file
from hocket.job.trace_writes import TraceWrites
from hocket.members.account import Account, Point
from hocket.members.member_limits import Limits
from hocket.members.member_messages import Committed, Resumed
from hocket.members.roll import Roll

LOST_BY = {
    "standing_still": "standing still after losses",
    "done_again": "work done again",
    "joining": "joining",
    "leaving": "leaving",
    "too_few_ranks": "waiting for enough ranks",
}
"""Causes of `Lost` in words."""

log = logging.getLogger("hocket.coordinator")


class ChangeLog:
    """Log with a line for each change, which says how long the decision took, and a record in the trace, if there is one.

    Attributes:
        account: work of the job, and what changes cost; its goodput so far is there for a live view.
    """

    def __init__(self) -> None:
        self.account = Account()
        self._trace: Path | None = None
        self._writes = TraceWrites("changes of members")
        self._since_ns: int | None = None
        self._noticed: str | None = None
        self._change: MembersChange | None = None
        """Last change, not yet written because no step stands since."""
        self._epoch = self._ranks = 0
        self._ended = False

    def take_down_in(self, trace: str | None, *, begins: bool) -> None:
        """Write changes to the trace in that directory, if given. A job that `begins` removes the records that another one left
        there."""
        self._trace = None if trace is None else Path(trace)
        if self._trace is not None and begins:
            members_file(self._trace).unlink(missing_ok=True)

    def begin(self, noticed: str) -> None:
        """Note when the first sign of a change was noticed, such as the end of a member's connection. More signs may follow."""
        if self._since_ns is None:
            self._since_ns, self._noticed = time.monotonic_ns(), noticed

    def forget(self) -> None:
        """Forget the signs of a change, since it is decided, or members meet again."""
        self.account.enough(time.monotonic())
        self._since_ns = self._noticed = None

    def decided(
        self,
        epoch: int,
        decision: _native.MemberAction,
        before: Collection[int],
        generation: Collection[int],
        roll: Roll,
    ) -> None:
        """Report an epoch with other members than those that trained `before`, which are all in `generation`."""
        here = [each for each in decision.members if each in generation]
        newcomers = [each for each in decision.members if each not in generation]
        self._epoch, self._ranks = epoch, len(here)
        if newcomers:
            self.expected([roll.name(each) for each in newcomers])
        elif decision.step is None:
            leavers = [each for each in before if each not in decision.members]
            if any(each in generation for each in leavers):
                self.account.leave(len(here), time.monotonic())
            self.left(epoch, roll.names(leavers), len(here), len(generation))
        if decision.step is not None:
            self.account.lost(len(here), time.monotonic())
            silent = not roll.silent.isdisjoint(decision.evicted)
            names = roll.names(decision.evicted)
            self.lost(epoch, names, len(here), len(generation), silent=silent)

    def lost(self, epoch: int, names: str, here: int, of: int, *, silent: bool) -> None:
        """Report that `here` of `of` members go on without the named ones. `silent`: one of those could not be heard."""
        if not names:
            log.warning("epoch %d: nobody is missing any more, and %d of %d ranks go on", epoch, here, of)
            return
        after_s = 0.0 if self._since_ns is None else (time.monotonic_ns() - self._since_ns) * 1e-9
        log.warning(
            "epoch %d without %s: %d of %d ranks go on; decided %.0f ms after the loss was noticed",
            epoch,
            names,
            here,
            of,
            after_s * 1e3,
        )
        self._take_down(
            MembersChange(
                what="lost",
                who=names,
                epoch=epoch,
                ranks=here,
                noticed="a rank was silent" if silent else self._noticed,
                decided_s=after_s,
            )
        )

    def left_behind(self, name: str, why: str) -> None:
        """Report a member that still runs, but without which the others go on."""
        log.warning("%s is left behind: %s", name, why)

    def ended_early(self, member: int, steps: int, roll: Roll) -> None:
        """Report a member whose script has ended after `steps` steps, while others make more."""
        log.warning(
            "the script of %s has ended after %d steps, and those of others go on: they do so without it",
            roll.name(member),
            steps,
        )

    def left(self, epoch: int, names: str, here: int, of: int) -> None:
        """Report members that have left in order."""
        log.warning("epoch %d after %s has left: %d of %d ranks go on", epoch, names, here, of)
        self._take_down(MembersChange(what="left", who=names, epoch=epoch, ranks=here))

    def expected(self, names: Sequence[str]) -> None:
        """Report processes that wait to join."""
        which = "it" if len(names) == 1 else "them"
        log.warning("%s: the others meet %s at the end of a step", ", ".join(names), which)

    def founded(self, ranks: int) -> None:
        """Note that the first ranks have met."""
        self._epoch, self._ranks = 1, ranks
        self.account.begin(ranks, time.monotonic())

    def joined(self, epoch: int, names: str, here: int) -> None:
        """Report that all members of the epoch have met."""
        self._epoch, self._ranks = epoch, here
        self.account.joined(here, time.monotonic())
        log.warning("epoch %d with %s: %d ranks go on", epoch, names or "the others", here)
        self._take_down(MembersChange(what="joined", who=names or "nobody", epoch=epoch, ranks=here))

    def full(self, name: str, ranks: int) -> None:
        """Report a process that waits until the job has room."""
        log.warning("%s waits: the job has %d ranks, as many as it may", name, ranks)

    def dropped(self, name: str, why: str) -> None:
        """Report a member that was lost in a meeting."""
        log.warning("%s was lost before all had met it: %s; the others meet without it", name, why)

    def waits(self, left: int, lost: str, limits: Limits) -> None:
        """Report that too few members are `left` without the `lost` ones, and wait for others."""
        self.account.waits(left, time.monotonic())
        log.warning(
            "%d of at least %d ranks are left, without %s: they wait %g s for others to join\n"
            "hint: `hocket join`, as many as are missing",
            left,
            limits.members_min,
            lost or "the others",
            limits.rejoin_patience_s,
        )

    def back(self, name: str) -> None:
        """Report a member that has found this coordinator."""
        log.warning("%s is back", name)

    def resumed(self, epochs_before: int, rank: int, message: Resumed) -> None:
        """Report that this rank trains again; the last change is written when a step stands. `epochs_before`: in earlier
        generations."""
        took_s, again = message.took_s, message.again
        work = "one step's communication was done again" if again else "nothing was done again"
        log.warning(
            "epoch %d: training goes on from step %d, %.0f ms after rank %d stopped; %s",
            epochs_before + message.epoch,
            message.steps,
            took_s * 1e3,
            rank,
            work,
        )
        self.account.resumed(time.monotonic(), again=again)
        if self._change is not None:
            step = message.steps if self._change.what == "lost" else None
            self._change = replace(self._change, step=step, stopped_s=took_s, again=again)

    def stands(self, message: Committed, *, joining: bool) -> None:
        """Note what stands in the job, as its first rank says. `joining`: newcomers take the state, or are awaited."""
        point = Point(
            at_s=time.monotonic() - message.age_s,
            generation=message.generation,
            steps=message.steps,
            shares=message.shares,
            samples=message.samples,
        )
        if self.account.stands(point, joining=joining):
            self._write_change()

    def end(self) -> None:
        """Write the last change, if it is still pending, and report the job's goodput; idempotent."""
        self._write_change()
        found = self.account.goodput()
        if self._ended or found is None:
            return
        self._ended = True
        log.warning("%s", goodput_line(found))
        self._write(
            MembersChange(what="ended", who="all ranks", epoch=self._epoch, ranks=self._ranks, goodput=found)
        )

    def _take_down(self, change: MembersChange) -> None:
        self._write_change()
        self._change = change

    def _write_change(self) -> None:
        """Write the last change, if it is still pending, with the job's goodput until now."""
        change, self._change = self._change, None
        if change is not None:
            self._write(replace(change, goodput=self.account.goodput()))

    def _write(self, change: MembersChange) -> None:
        if self._trace is None:
            return
        self._writes(functools.partial(_append, self._trace, change))


def goodput_line(found: Goodput) -> str:
    """Return a line about a job's goodput."""
    lost = {LOST_BY[cause]: work / found.undisturbed for cause, work in asdict(found.lost).items()}
    shares = [f"{cause} {share:.1%}" for cause, share in lost.items() if round(share, 3) > 0]
    return (
        f"goodput {found.share:.1%}: {found.committed} {found.unit} in {found.time_s:.1f} s, of {found.undisturbed:.0f} by the "
        f"same ranks undisturbed, and {found.all_along:.0f} by as many as at the start; lost: {', '.join(shares) or 'nothing'}"
    )


def _append(trace: Path, change: MembersChange) -> None:
    trace.mkdir(parents=True, exist_ok=True)
    append_members_change(trace, change)
