"""Giving the state to ranks that join, beside training: what a rank that trains does.

Between two steps, the thread that trains copies the parts that a joining rank asks for. Of those that it has given before, it
copies the gradients of each further step: each sum as soon as it is there, while the others still travel. When the optimizer is
about to step, it says which of these it steps with, and copies those that the script has changed since. A thread for each joining
rank sends all that. So the others stand still for a copy within memory, whatever the size of the state, and when they meet the
newcomer, it lacks no more of the last step than they do (`fetching`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hocket.errors import Error
from hocket.job.store import frames
from hocket.job.store.channel import Channel
from hocket.job.store.store import connect
from hocket.members.membership import Membership
from hocket.training.checkpoint.replicate import digest
from hocket.training.elastic.state_messages import (
    Ahead,
    FromSource,
    Gives,
    Meets,
    Offers,
    Stops,
    Sums,
    frames_of,
    read_asks,
)
from hocket.training.elastic.state_messages import Steps as Stepped
from hocket.training.memory.buckets import Launch, LoadedBucket
from hocket.training.memory.state_parts import StateBytes, StateParts

CONNECT_S = 10.0
LOOK_S = 0.02
"""Longest time until the thread sees a request or something to send."""
SEND_TIMEOUT_S = 60.0
BEHIND_STEPS, BEHIND_BYTES = 4, 256 << 20
"""A joining rank is given up when what is still to be sent exceeds both: so many steps' gradients, and so many bytes."""
COPY_S = 0.02
"""Time for which parts are copied between two steps, but for a larger part alone: on a busy machine, memory is slow."""
PROVED_BYTES = 32 << 20
"""Bytes whose digests are made between two steps, at most, but for a larger part alone."""

log = logging.getLogger("hocket.elastic")


class Giving:
    """State of this rank, for those that wait to join."""

    def __init__(self, membership: Membership, secret: bytes, parts: StateParts) -> None:
        """Give nothing yet. `secret`: the job's."""
        self._membership, self._secret, self._parts = membership, secret, parts
        self._changed: Collection[int] = ()
        self._takers: dict[int, Taker] = {}
        """By the number that they will have as members."""
        self._stands = self._told = False
        """True between a backward and the optimizer's step with its gradients, and once takers know of this step."""
        parts.before_step(self._steps)

    @property
    def follows(self) -> bool:
        """True if a rank wants the sums of a step as soon as they are there."""
        return any(each.wants_sums for each in self._takers.values())

    def summed(self, bucket: LoadedBucket, mean: LoadedBucket, launch: Launch) -> None:
        """Give gradients of a bucket of which a launch has summed up the last part, in a step that may still be done again."""
        # Rows are added up when the step stands.
        if self.follows and launch.rows is None:
            last = {name: each.number for each in bucket.launches for name in each.names}
            views = dict(zip(mean.names, mean.views, strict=True))
            self.give_sums({name: views[name] for name in launch.names if last[name] == launch.number})

    def give_sums(self, sums: Mapping[str, Any]) -> None:
        """Give sums of gradients, by name."""
        for each in self._takers.values():
            if each.wants_sums:
                each.give_sums(sums)

    def backward_ended(self) -> None:
        """Look for parts that the script has changed since the last step, such as averages of trained ones."""
        self._stands = True
        if any(each.goes_on for each in self._takers.values()):
            self._changed = set(self._parts.changed())

    def _steps(self) -> None:
        """Tell takers of a step that the optimizer is about to make, which they make at the same time."""
        if self._stands:
            self._tell()
        self._stands = False

    def _tell(self) -> None:
        self._told = True
        for each in self._takers.values():
            if each.goes_on:
                each.steps(self._changed)

    def stepped(self, why_not: str | None = None, *, alone: bool = False, meets: bool = False) -> None:
        """Give what is asked for, after a step of the optimizer. `why_not`: why what is given changes in other ways than by steps
        that all ranks make alike; None: it does not; `alone`: this one was a step of this rank alone, which changes nothing;
        `meets`: all may meet after it, and wait for what is given now."""
        wanting = self._membership.joining.wanting
        for member in [each for each in self._takers if each not in wanting]:
            self._takers.pop(member).end()
        for member, address in wanting.items():
            if member not in self._takers:
                self._takers[member] = Taker(address, self._secret, self._parts)
        if why_not is not None:
            for each in self._takers.values():
                each.stop(why_not)
        if not (self._told or alone):
            # Gradients came within the step: an exchange of ranks that step alone follows it, and some optimizers call backward.
            self._tell()
        changed, self._changed, self._stands, self._told = self._changed, (), False, False
        if any(each.goes_on for each in self._takers.values()):
            for each in self._takers.values():
                if each.goes_on and alone:
                    each.give_asked()
                elif each.goes_on:
                    each.stepped(changed, proves=not meets)
            if not alone:
                self._parts.stepped()

    def meets(self, newcomers: Collection[int], steps: int) -> None:
        """Note that all ranks meet these, after so many steps of the job."""
        for member in newcomers:
            if member in self._takers:
                self._takers[member].last(Meets(steps=steps))


class Taker:
    """A rank that joins, as one that gives it the state sees it."""

    def __init__(self, address: str, secret: bytes, parts: StateParts) -> None:
        """Connect to it, in a thread of its own, and offer the state."""
        self._parts, self._address = parts, address
        self._secret = secret
        self._changed = threading.Condition()
        self._unsent: deque[tuple[Iterable[bytes], int]] = deque()
        """Frames of each message, and bytes of its data."""
        self._unsent_bytes = 0
        self._asked: deque[int] = deque()
        self._followed: dict[int, None] = {}
        self._pieces: set[int] = set()
        """Parts that were given, and that no step changes."""
        self._unproved: deque[int] = deque()
        self._ahead: dict[int, str] = {}
        """By part, a digest of the sum that was given in the step under way."""
        self._keeps_sums = True
        """True as long as the optimizer steps with sums as they are given."""
        self._over = self._closed = False
        why = parts.unfit()
        if why is None:
            sizes = parts.parts()
            trained = sum(each.trained for each in sizes)
            self._sizes = tuple(each.bytes for each in sizes)
            self._trained = trained
            self._queue(Offers(sizes=self._sizes, trained=trained, outer=parts.outer))
        else:
            self.stop(why)
        self._thread = threading.Thread(target=self._run, name="hocket-giver", daemon=True)
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        """True until the last message is queued or the connection ends."""
        return not (self._over or self._closed)

    @property
    def wants_sums(self) -> bool:
        """True if sums are of use before the step."""
        return self.goes_on and self._keeps_sums and bool(self._followed)

    def give_sums(self, sums: Mapping[str, Any]) -> None:
        """Queue sums of gradients, by name, which the next step may be with."""
        given = self._parts.sums(sums, self._followed)
        if given:
            self._ahead.update((part, digest([each])) for part, each in given)
            parts, arrays = zip(*given, strict=True)
            sizes = tuple(map(len, arrays))
            self._queue(Ahead(parts=parts, sizes=sizes, bytes=sum(sizes)), arrays)

    def steps(self, changed: Collection[int]) -> None:
        """Queue a step, with gradients that were not given yet. `changed`: parts that something else has changed."""
        given = [part for part in self._followed if part not in changed]
        gradients = self._parts.gradients(given)
        size_bytes = sum(len(each) for _, each in gradients)
        if self._unsent_bytes > max(BEHIND_BYTES, BEHIND_STEPS * size_bytes):
            self.stop(
                f"training makes gradients faster than they reach it: {self._unsent_bytes >> 20} MiB wait to be sent"
            )
            return
        ahead = self._ahead
        here = {part for part, each in gradients if part in ahead and ahead[part] == digest([each])}
        # A script that changes gradients, such as by clipping, does so in more steps than this one.
        self._keeps_sums = self._keeps_sums and all(part in here for part, _ in gradients if part in ahead)
        self._ahead = {}
        if self._followed:
            left = [each for part, each in gradients if part not in here]
            step = Stepped(
                rates=list(map(dict, self._parts.rates())),
                parts=tuple(part for part, _ in gradients),
                sizes=tuple(len(each) for _, each in gradients),
                here=tuple(sorted(here)),
                behind=self._unsent_bytes,
                bytes=sum(map(len, left)),
            )
            self._queue(step, left)

    def stepped(self, changed: Collection[int], *, proves: bool) -> None:
        """Queue parts as they are after a step: those in `changed` that were given, and those that are asked for; and digests, if
        it `proves` what was given."""
        self._give(
            sorted(part for part in changed if part in self._followed or part in self._pieces), again=True
        )
        self.give_asked()
        if proves:
            self._prove()

    def last(self, message: Meets | Stops) -> None:
        """Queue the last message."""
        if self.goes_on:
            self._queue(message)
        self._over = True

    def stop(self, why: str) -> None:
        """Give no more. The joining rank gets what it lacks when all ranks meet it."""
        if not self.goes_on:
            return
        log.info("the state does not go to %s beside training: %s", self._address, why)
        self.last(Stops(why=why))

    def end(self) -> None:
        """Hang up: it waits no longer."""
        self._closed = True

    def give_asked(self) -> None:
        """Queue parts that are asked for."""
        until_s = time.monotonic() + COPY_S
        while self._asked and time.monotonic() < until_s:
            part = self._asked.popleft()
            if part >= len(self._sizes):
                self.stop(f"it asks for part {part} of {len(self._sizes)}")
                return
            self._give([part])

    def _give(self, parts: Sequence[int], *, again: bool = False) -> None:
        for part in parts:
            described, arrays = self._parts.give(part)
            message = Gives(part=part, described=described, bytes=sum(map(len, arrays)))
            # What nothing changes is sent from where it lies.
            self._queue(message, arrays, stays=part >= self._trained and not again)
            if part >= self._trained:
                self._pieces.add(part)
            elif part not in self._followed:
                self._followed[part] = None
                self._unproved.append(part)

    def _prove(self) -> None:
        """Queue digests of some parts, of all in turn."""
        read_bytes, digests = 0, dict[int, str]()
        for _ in range(len(self._unproved)):
            part = self._unproved[0]
            alike = self._parts.alike(part)
            read_bytes += sum(map(len, alike))
            if digests and read_bytes > PROVED_BYTES:
                break
            self._unproved.rotate(-1)
            digests[part] = digest(alike)
        if digests:
            self._queue(Sums(digests=digests))

    def _queue(self, message: FromSource, arrays: Sequence[StateBytes] = (), *, stays: bool = False) -> None:
        """Queue a message with this data. `stays`: nothing changes it."""
        copies = arrays if stays else [np.copy(each) for each in arrays]
        with self._changed:
            size_bytes = sum(map(len, copies))
            self._unsent.append((frames_of(message, copies), size_bytes))
            self._unsent_bytes += size_bytes
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            _, channel = connect(self._address, self._secret, CONNECT_S)
        except Error as error:
            log.info("the state cannot be given beside training: %s", error.summary)
            self._closed = True
            return
        try:
            self._serve(channel)
        except (OSError, Error) as error:
            log.info("%s, which joins, gets no more of the state from here: %s", self._address, error)
        finally:
            self._closed = True
            self._unsent.clear()
            channel.close()

    def _serve(self, channel: Channel) -> None:
        asks = frames.Frames()
        while not self._closed:
            with self._changed:
                if not self._unsent:
                    self._changed.wait(LOOK_S)
                due, size_bytes = self._unsent.popleft() if self._unsent else ((), 0)
            for payload in due:
                channel.send(frames.encode(payload), time.monotonic() + SEND_TIMEOUT_S)
                self._hear(channel, asks)
            with self._changed:
                self._unsent_bytes -= size_bytes
                if self._over and not self._unsent:
                    break
            self._hear(channel, asks)
        # An end with requests unread would take with it what is still on its way.
        deadline_s = time.monotonic() + SEND_TIMEOUT_S
        while not self._closed and time.monotonic() < deadline_s:
            channel.arrived(LOOK_S)

    def _hear(self, channel: Channel, asks: frames.Frames) -> None:
        asks.feed(channel.arrived(0.0))
        while (payload := asks.poll()) is not None:
            self._asked.extend(read_asks(payload).parts)
