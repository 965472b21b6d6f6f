"""`Configured`: the members of a group. They are fixed by its creator, or those of the last `reconfigure`.

A group made with `enable_reconfigure=True` has no members before its first `reconfigure`, and none after `abort` or a
`reconfigure` that failed; each configuration has a job, an engine and connections of its own, so that a member of an older
one never writes into a newer one. docs/torch-distributed.md says what users see.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from weakref import WeakSet, finalize

from torch._C._distributed_c10d import Work

from hocket.errors import Error, UsageError
from hocket.job.cause import cause_of
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.torch.backend.abilities import Abilities
from hocket.torch.backend.communicator import Communicator
from hocket.torch.backend.dropped import leaving
from hocket.torch.backend.errors import as_torch
from hocket.torch.backend.handles import Door, Handle, members_of
from hocket.torch.backend.node import Node
from hocket.torch.backend.tasks import DONE
from hocket.torch.older import reconfigures
from hocket.torch.uncompiled import uncompiled_methods

FIXED = (
    "the members of this group stay as they are\n"
    'hint: init_process_group("hocket", enable_reconfigure=True) makes one whose members change; '
    "hocket run --elastic trains on without lost ranks, with hocket.torch.distribute (docs/elastic.md)"
)

log = logging.getLogger("hocket.torch")

open_groups: WeakSet[Configured] = WeakSet()
"""Open groups of this process. One to which nothing else refers is closed."""


@contextmanager
def errors_as_torch() -> Iterator[None]:
    """Raise errors of Hocket as those of PyTorch's backends."""
    try:
        yield
    except Error as error:
        raise as_torch(error) from error


@uncompiled_methods
class Configured(Abilities):
    """Group without its collectives."""

    supports_abort_hooks = True

    def __init__(self, opts: Any, *, spans_world: bool) -> None:
        """Start without members. `opts`: as torch gives it to `create`."""
        super().__init__(opts)
        self.spans_world = spans_world
        self._timeout_s = opts.timeout.total_seconds()
        self._rank: int = opts.group_rank
        self._size: int = opts.group_size
        self._door = Door(Settings.from_environment()) if reconfigures(opts) else None
        self._present: Communicator | None = None
        self._absence = "reconfigure() has not been called"
        self._abort_hooks: dict[int, Callable[[], None]] = {}

    @property
    def communicator(self) -> Communicator:
        """Present configuration. RuntimeError: there is none."""
        if self._present is None:
            raise as_torch(
                UsageError(
                    f"the group has no members: {self._absence}\nhint: reconfigure() with the handles of all"
                )
            )
        return self._present

    @property
    def node(self) -> Node:
        """This process in the job of the present members."""
        return self.communicator.node

    def join(self, node: Node, ranks: Sequence[int], store: Any) -> None:
        """Meet the members through `store`. `ranks`: theirs, in the numbering of `node`, by rank in the group."""
        rank = ranks.index(node.job.rank)
        self._present = Communicator(
            node,
            ranks,
            rank=rank,
            store=store,
            name=self.getGroupName(),
            timeout_s=self._timeout_s,
            describe=self.getGroupDesc,
            failing=self._failed,
        )
        self._dropped = finalize(self, leaving(), self._present.dropped)
        self._dropped.atexit = False
        self._rank, self._size = rank, len(ranks)

    def getRank(self) -> int:  # noqa: N802  # torch's name
        """Return this process's rank among the present members, or the last ones."""
        return self._rank

    def getSize(self) -> int:  # noqa: N802  # torch's name
        """Return the number of present members, or of the last ones."""
        return self._size

    @property
    def supports_reconfigure(self) -> bool:
        """True if the group was made with `enable_reconfigure=True`."""
        return self._door is not None

    def get_reconfigure_handle(self) -> str:
        """Return what other members need to find this process. RuntimeError: the members are fixed."""
        return self._own_door().text

    def reconfigure(self, opts: Any) -> Work:
        """Go on with the members that `opts.handles` names, by rank; all of them must call this with the same `opts.uuid`.

        Calls of the previous configuration that have not ended fail, here and on the others. The work is complete.

        Raises:
            RuntimeError: BackendUsageError: a handle or the uuid is wrong, or members are fixed; the configuration stays.
                BackendRendezvousError: members have not come within `opts.timeout`, and are named; the group has no
                members then.
        """
        door = self._own_door()
        with errors_as_torch():
            if opts.hints:
                raise UsageError(
                    f"reconfigure: backend hocket does not know {sorted(opts.hints)[0]!r}\nhint: leave out `hints`"
                )
            members = members_of(opts.handles)
            rank = door.rank_among(members, opts.uuid)
            timeout = opts.timeout or timedelta(seconds=self._timeout_s)
            self._leave("this member went on to another configuration of the group")
            try:
                self._meet(door, members, rank, opts.uuid, timeout)
            except Error as error:
                self._absence = f"reconfigure() failed: {error.summary}"
                raise
        return DONE

    def register_abort_hook(self, hook_id: int, hook: Callable[[], None]) -> None:
        """Call `hook` when a call has failed, and before `abort`, perhaps several times for one failure."""
        self._abort_hooks[hook_id] = hook

    def unregister_abort_hook(self, hook_id: int) -> None:
        """Forget the hook."""
        self._abort_hooks.pop(hook_id, None)

    def abort(self) -> None:
        """Tell all ranks that this one gives up. A group whose members change is there for the next `reconfigure`."""
        self._call_abort_hooks()
        if self._present is None:
            return
        reason = f"rank {self.node.job.rank} aborted a process group"
        if self._door is None:
            self.node.engine.abort(reason)
        else:
            self._parted().abandon(reason)
            self._absence = "it was aborted"

    def shutdown(self) -> None:
        """Close the group after its queued calls; the last group of the process leaves the job."""
        if self not in open_groups:
            return
        open_groups.remove(self)
        if self._door is not None:
            self._leave("this member has destroyed the group")
            self._absence = "it was destroyed"
        elif self._present is not None:
            self._dropped.detach()
            self._present.leave()

    def _own_door(self) -> Door:
        if self._door is None:
            raise as_torch(UsageError(FIXED))
        return self._door

    def _meet(self, door: Door, members: Sequence[Handle], rank: int, uuid: int, timeout: timedelta) -> None:
        store = door.store_of(members[0], uuid, timeout)
        one_host = all(each.place == door.handle.place for each in members)
        master = addresses.LOOPBACK if one_host else members[0].address
        node = Node(store, rank, len(members), timeout, master=master, look=False)
        try:
            self.join(node, range(len(members)), store)
        except BaseException:
            node.close(linger_s=0.0)
            raise

    def _leave(self, reason: str) -> None:
        if self._present is None:
            return
        present = self._parted()
        if present.works.is_idle:
            present.leave(linger_s=0.0)
        else:
            present.abandon(reason)

    def _parted(self) -> Communicator:
        """Be without members, and return the configuration to leave. RuntimeError: there is none."""
        present, self._present = self.communicator, None
        self._dropped.detach()
        return present

    def _failed(self, error: BaseException) -> None:
        job = None if self._present is None else self._present.node.job
        # A wrong call that no other rank has a part in is its caller's alone.
        if job is not None and job.failing is not None and cause_of(error, job.rank) is not None:
            # Members that change go on without those that are lost, and are not kept waiting.
            job.failing.failed(str(error), asks=self._door is None)
        if not isinstance(error, UsageError):
            self._call_abort_hooks()

    def _call_abort_hooks(self) -> None:
        for hook in list(self._abort_hooks.values()):
            try:
                hook()
            except Exception:  # a hook captures what it can; its failure must not hide the call's
                log.exception("hocket: a hook of group %s failed", self.getGroupName())
