"""This process in the world of `torch.distributed`: a job that meets through torch's own store, and its engine.

There is one as long as there is a default group; subgroups share it. Without HOCKET_SECRET, ranks prove to each other that they
know a secret, which rank 0 creates and publishes in torch's store. That store authenticates nobody: any reader can take part, as in
torch itself.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import secrets
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from hocket import _native
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.tuning import Tuning
from hocket.errors import PeerError, RendezvousError
from hocket.job import at_exit as ending
from hocket.job import tuning
from hocket.job.cause import cause_of
from hocket.job.first_file import of_rank_0
from hocket.job.rendezvous import LINGER_S, SECRET_BYTES, Job, join
from hocket.job.uncaught import described, uncaught
from hocket.measure.quick import known_cluster
from hocket.settings import Settings
from hocket.start.variables import of_torch
from hocket.torch.backend.messages import Messages
from hocket.torch.backend.recorder import Recorder
from hocket.torch.backend.staging import Staging
from hocket.torch.backend.works import Works


class Node:
    """Joined and connected process."""

    def __init__(
        self, store: Any, rank: int, world: int, timeout: timedelta, *, master: str | None, look: bool = True
    ) -> None:
        """Join; every rank must call this. RendezvousError names missing ranks.

        `master`: address of rank 0's machine as this one sees it, None if unknown.
        `look` False: for members that change; they meet within `timeout`, and take no look at the network.
        """
        store.set_timeout(timeout)
        self._store = store
        environment = of_torch(rank, world, master)
        settings = Settings.from_environment(environment)
        if not look:
            settings = dataclasses.replace(settings, start_timeout_s=timeout.total_seconds(), autopilot=False)
        self.job: Job = join(
            settings,
            environment=environment,
            publish=self._publish,
            known_secret=self._secret(rank),
        )
        try:
            self.tuning: Tuning = tuning.agreed(self.job)
            self.engine: _native.Engine = self.job.engine()
            given = of_rank_0(self.job, "cluster", self.job.settings.cluster, Cluster)
            self.cluster: Cluster | None = known_cluster(self.job, self.engine, given)
        except BaseException:
            self.job.close()
            raise
        self.job.publish()
        self.recorder: Recorder | None = None
        """Record of calls, if dumps are wanted."""
        if self.job.failing is not None:
            self.recorder = Recorder()
            self.job.failing.dumps.add(self.recorder.calls)
        self.works: list[Works] = []
        """Works of the open groups."""
        self.staging = Staging(self.engine)
        self.messages = Messages(self.engine, self.works, self.staging)
        self._owner, self._closed, self._gave_up = os.getpid(), False, False
        uncaught.tell(self._on_exception)
        atexit.register(self.close)

    @property
    def is_open(self) -> bool:
        """True in the process that has joined, until it leaves."""
        return os.getpid() == self._owner and not self._closed

    def close(self, linger_s: float = LINGER_S) -> None:
        """Leave the job; idempotent. A forked child does nothing. `linger_s`: as in `Job.close`."""
        if self.is_open:
            at_exit = ending.process_ends() and not self._gave_up
            self._closed = True
            atexit.unregister(self.close)
            uncaught.forget(self._on_exception)
            for works in self.works:
                works.end()
            self.messages.close()
            self.staging.close()
            # A rank that leaves with open messages knows why: a call of its own failed. Peers report their own open
            # messages.
            with contextlib.suppress(PeerError):
                self.engine.close(at_exit=at_exit)
            for works in self.works:
                works.join()
            if self.recorder is not None and self.job.failing is not None:
                self.job.failing.dumps.remove(self.recorder.calls)
            self.job.close(linger_s=min(linger_s, ending.LINGER_S) if at_exit else linger_s)

    def _on_exception(self, error: BaseException) -> None:
        if self.is_open:
            self._gave_up = True
            reason, cause = described(error), cause_of(error, self.job.rank)
            if self.job.failing is not None:
                self.job.failing.failed(reason, error, asks=cause is not None)
            self.engine.abort(reason, cause)

    def _secret(self, rank: int) -> bytes:
        if rank == 0:
            self._store.set("hocket/secret", secrets.token_hex(SECRET_BYTES))
        return bytes.fromhex(self._read("hocket/secret"))

    def _publish(self, text: str | None, _timeout_s: float) -> str:
        if text is not None:
            self._store.set("hocket/address", text)
        return self._read("hocket/address")

    def _read(self, key: str) -> str:
        try:
            return str(self._store.get(key).decode())
        except RuntimeError as error:
            raise RendezvousError(f"rank 0 did not come to torch's store: {error}") from None


def host_of(store: Any) -> str | None:
    """Return this rank's address of the machine with torch's store; None if the store is a file or memory."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return str(store.host) if isinstance(store, TCPStore) else None
