"""This process as a member of an elastic job: its side of what the coordinator decides, and the engine's epochs that follow.

A thread hears the coordinator, also while the script computes: it stops the engine and reports at once. An epoch begins where
the script can follow: in `next_epoch`, which the session calls. Whatever changes the machine or the engine's epoch holds one lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hocket import _native
from hocket.errors import EpochError, Error, PeerError, RendezvousError
from hocket.launch import frames
from hocket.launch.member_messages import (
    Comes,
    Finished,
    FromMember,
    MustLeave,
    Notes,
    Orders,
    OtherFinished,
    Over,
    Resumed,
    read_from_coordinator,
)
from hocket.launch.rendezvous import Job
from hocket.launch.store import connect

LOOK_S = 0.02
"""How often the thread looks whether the engine has lost a peer while nothing waits for it."""
SEND_TIMEOUT_S = 10.0
QUIESCE_TIMEOUT_S = 10.0
"""For ops that run when an epoch ends: far longer than the longest."""
FENCE_TIMEOUT_S = 0.2
"""How long a neighbour that was left behind may take to end before it is killed."""
WAKE_S = 0.1
"""Longest wait in which Ctrl-C is not noticed."""

log = logging.getLogger("hocket.membership")


@dataclass(frozen=True)
class Epoch:
    """Members that go on, by their new ranks: each by its rank at the start."""

    number: int
    members: tuple[int, ...]


class Membership:
    """One member of an elastic job, from its founding to `close`."""

    def __init__(self, job: Job, engine: _native.Engine) -> None:
        """Come to the coordinator, and wait until all have. Every rank must call it. `engine`: connected.

        RendezvousError: the coordinator cannot be reached, or ranks are missing.
        """
        assert job.settings.coordinator is not None  # noqa: S101  # the job is elastic
        self._job, self._engine = job, engine
        self._changed = threading.Condition(threading.RLock())
        self._pending: deque[Epoch] = deque()
        self._members: tuple[int, ...] = ()
        self._exit: str | None = None
        self._over = False
        self._released = False
        self._closing = False
        self._stopped_s: float | None = None
        self._without_leavers: tuple[int, ...] | None = None
        self._left: tuple[int, ...] = ()
        """Members that have left in order."""
        self._leave_asked = threading.Event()
        self.committed = 0
        """Steps that stand."""
        self.finished: dict[int, int] = {}
        """Members whose scripts have ended, and after how many steps."""
        timeout_s = job.settings.start_timeout_s
        _, self._channel = connect(job.settings.coordinator, job.secret, timeout_s)
        self._frames = frames.Frames()
        self._machine = _native.Participant(
            member=job.rank,
            host=job.hosts.index(job.host),
            coordinator_patience_s=job.settings.heartbeat_timeout_s,
            now_s=time.monotonic(),
        )
        self._tell(Comes(member=job.rank, who=f"rank {job.rank} on {job.host} (process {os.getpid()})"))
        with self._changed:
            self._act(self._machine.linked(time.monotonic()))
        self._thread = threading.Thread(target=self._listen, name="hocket-member", daemon=True)
        self._thread.start()
        with self._changed:
            found = self._changed.wait_for(lambda: self._pending or self._exit, timeout_s)
            if not found or self._exit:
                why = (
                    self._exit or f"not all {job.world} ranks came to the coordinator within {timeout_s:g} s"
                )
                raise RendezvousError(f"{why}\nhint: see what the others printed")
            self._pending.clear()

    @property
    def vote(self) -> int:
        """The newest epoch that this member is ready for."""
        with self._changed:
            return self._machine.vote

    def leave(self) -> None:
        """Ask the coordinator to go on without this member, after a step that is still to come. In any thread, and in handlers of
        signals."""
        self._leave_asked.set()

    def prepared(self, step: int, vote: int) -> bool:
        """All sums of a step are here, and the smallest vote. Whether the step goes on to the barrier; else the members change."""
        with self._changed:
            return "barrier" in self._act(self._machine.prepared(step, vote, time.monotonic()))

    def done(self, step: int) -> bool:
        """The step's barrier is complete here. Whether the step stands; else that is for the coordinator to decide."""
        with self._changed:
            self._act(self._machine.done(step, time.monotonic()))
            return self.committed > step

    def without_leavers(self) -> tuple[int, ...] | None:
        """The members without those that leave after the step which has just come to stand, if any do; given once."""
        with self._changed:
            members, self._without_leavers = self._without_leavers, None
            if members is not None:
                self._stopped_s = self._stopped_s or time.monotonic()
            return members

    def wait_for_release(self, timeout_s: float) -> None:
        """The others have begun an epoch without this member: they may need it until all have."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._exit or self._over, timeout_s):
                log.warning("%s: leaves unreleased after %g s", self._me, timeout_s)

    def next_epoch(self, timeout_s: float) -> Epoch | None:
        """The epoch that follows the one in force, begun on this rank's engine; it has no programs yet. None: this member has left
        with the step that it has prepared, which stands.

        Raises PeerError: the others go on without this rank, the job ends, or nothing is decided in time.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            self._note_losses()
            while True:
                if self._released:
                    return None
                epoch = self._due()
                if epoch is not None:
                    try:
                        self._engine.resume(epoch.number, epoch.members, FENCE_TIMEOUT_S, left=self._left)
                    except EpochError:
                        # Lost already: another epoch follows this one.
                        self._note_losses()
                    else:
                        return epoch
                    continue
                if time.monotonic() > deadline_s:
                    raise PeerError(
                        f"{self._me}: the coordinator has not decided within {timeout_s:g} s how the job goes on\n"
                        "hint: see what `hocket run` and the other ranks printed",
                        why="timeout",
                    )
                self._changed.wait(WAKE_S)

    def resumed(self, epoch: int, *, again: bool) -> None:
        """Training goes on in an epoch. `again`: a step was reduced anew."""
        with self._changed:
            took_s = 0.0 if self._stopped_s is None else time.monotonic() - self._stopped_s
            self._stopped_s = None
            self._tell(Resumed(epoch=epoch, took_s=took_s, again=again))

    def finish(self, timeout_s: float) -> None:
        """The script has ended in order. Waits until all others' have, since they may still ask what this one knows."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            if self._closing or self._exit:
                return
            self._tell(Finished(steps=self.committed))
            while not (self._over or self._exit):
                if time.monotonic() > deadline_s:
                    log.warning("%s: not all ranks have finished %g s after this one", self._me, timeout_s)
                    return
                if self._pending:
                    self.next_epoch(timeout_s)
                else:
                    self._changed.wait(WAKE_S)

    def close(self) -> None:
        """Take no further part; idempotent. The engine closes after it."""
        if self._closing:
            return
        self._closing = True
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._channel.close()

    @property
    def _me(self) -> str:
        return f"rank {self._job.rank} on {self._job.host}"

    def _due(self) -> Epoch | None:
        """The last epoch that was decided, if nothing has happened to it since. PeerError: there will be none."""
        if self._exit is not None:
            raise PeerError(f"{self._me}: {self._exit}", rank=self._job.rank, host=self._job.host)
        while self._pending:
            epoch = self._pending.popleft()
            if epoch.number == self._machine.in_force:
                return epoch
        return None

    def _listen(self) -> None:
        """The thread."""
        while not self._closing:
            try:
                data = self._channel.arrived(LOOK_S)
                with self._changed:
                    self._frames.feed(data)
                    while (payload := self._frames.poll()) is not None:
                        self._hear(payload)
                    self._note_losses()
                    self._act(self._machine.tick(time.monotonic()))
                    if self._leave_asked.is_set():
                        self._leave_asked.clear()
                        self._act(self._machine.leave_asked(time.monotonic()))
            except (OSError, Error) as error:
                self._end(str(error))
                return

    def _hear(self, payload: bytes) -> None:
        match read_from_coordinator(payload):
            case Orders(order=order):
                self._act(self._machine.order(order, time.monotonic()))
            case OtherFinished(member=member, steps=steps):
                self.finished[member] = steps
            case Over():
                self._over = True
            case MustLeave():
                self._leave_asked.set()
        self._changed.notify_all()

    def _note_losses(self) -> None:
        if self._over or self._closing or self._exit:
            return
        for member in self._engine.lost:
            self._act(self._machine.lost(member, time.monotonic()))

    def _act(self, actions: Sequence[_native.MemberAction]) -> set[str]:
        """Do what the machine wants, in order; the kinds of that."""
        waiting, kinds = deque(actions), set()
        while waiting:
            action = waiting.popleft()
            kinds.add(action.kind)
            match action.kind:
                case "send" if action.bytes is not None:
                    self._tell(Notes(note=action.bytes))
                case "quiesce":
                    self._stopped_s = self._stopped_s or time.monotonic()
                    self._engine.quiesce("the members of the job change", QUIESCE_TIMEOUT_S)
                    waiting.extend(self._machine.quiesced(time.monotonic()))
                case "commit":
                    self.committed = (action.step or 0) + 1
                case "prepare":
                    # Its programs are made when it begins.
                    waiting.extend(self._machine.loaded(action.epoch or 0, time.monotonic()))
                case "enter":
                    self._enter(action)
                case "left":
                    self._released, self._exit = True, action.why
                    # The others may have gone on before this member has left the barrier of its last step.
                    self._without_leavers = tuple(each for each in self._members if each != self._job.rank)
                case "exit":
                    self._exit = action.why
                    with contextlib.suppress(Error):
                        self._engine.interrupt(action.why or "")
        self._changed.notify_all()
        return kinds

    def _enter(self, decision: _native.MemberAction) -> None:
        epoch = Epoch(decision.epoch or 0, tuple(decision.members))
        leavers = tuple(
            each for each in self._members if each not in epoch.members and each not in decision.evicted
        )
        if leavers:
            # Others may have been lost since: then this is the second epoch without the leavers, and some have been in the first.
            self._left += leavers
            self._without_leavers = tuple(each for each in self._members if each not in leavers)
        self._members = epoch.members
        self._pending.append(epoch)

    def _end(self, why: str) -> None:
        """Nothing more comes of the coordinator."""
        with self._changed:
            if not (self._over or self._closing):
                self._exit = self._exit or f"the coordinator is gone: {why}"
                with contextlib.suppress(Error):
                    self._engine.interrupt(self._exit)
            self._changed.notify_all()

    def _tell(self, message: FromMember) -> None:
        try:
            self._channel.send(frames.encode(msgspec.json.encode(message)), time.monotonic() + SEND_TIMEOUT_S)
        except OSError as error:
            self._end(str(error))
