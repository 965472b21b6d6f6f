"""Collectives of a group.

Part `i` of `n` of a buffer is `cx.split(buffer, n)[i]` and belongs to member `i` of the group.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket.artefacts.algorithms import RUN
from hocket.policy import algorithms, libraries, sources
from hocket.policy.data import DataOps
from hocket.policy.handles import Buffer
from hocket.policy.libraries import Library
from hocket.policy.messages import MessageOps


class CollectiveOps(DataOps, MessageOps):
    """Collectives over a group of ranks (default: all), in the order of their parts.

    `algorithm` is `ring, halving_doubling, double_binary_tree, bcube, two_level, parameter_server, collect_spread, trees,
    direct, in_place` or `auto`; `sizes` are the groups of `two_level` (default: by host), the shares of each member to collect
    and then to spread for `collect_spread` (default: equal), or of each tree its weight, each member's parent on the way up and
    each one's on the way down for `trees` (default: a star around each member). `base` is the fan-out of `bcube`, `servers` the
    number of members that serve.
    `library` (`gloo`, `nccl`, `mpi`) executes the collective instead of the native wire. The ranks of a group call its collectives
    in the same order.
    """

    def all_reduce(
        self,
        buffer: Buffer,
        op: str = "sum",
        *,
        group: Sequence[int] | None = None,
        algorithm: str = "auto",
        sizes: Sequence[int] | None = None,
        base: int = 4,
        servers: int | None = None,
        library: Library | None = None,
    ) -> Buffer:
        """Reduce all members' buffers with `sum`, `mean`, `min` or `max`, in place, with the result on every member."""
        return self._collective(
            "all_reduce", buffer, group, algorithm, library, op=op, sizes=sizes, base=base, servers=servers
        )

    def reduce_scatter(
        self,
        buffer: Buffer,
        op: str = "sum",
        *,
        group: Sequence[int] | None = None,
        algorithm: str = "auto",
        base: int = 4,
        library: Library | None = None,
    ) -> Buffer:
        """Reduce each member's own part of all buffers, and return it.

        The buffer's other parts are undefined afterwards.
        """
        self._collective("reduce_scatter", buffer, group, algorithm, library, op=op, base=base)
        return self._own_part(buffer, group)

    def all_gather(
        self,
        buffer: Buffer,
        *,
        group: Sequence[int] | None = None,
        algorithm: str = "auto",
        base: int = 4,
        library: Library | None = None,
    ) -> Buffer:
        """Copy each member's own part of its buffer to all members, in place."""
        return self._collective("all_gather", buffer, group, algorithm, library, base=base)

    def broadcast(
        self,
        buffer: Buffer,
        root: int,
        *,
        group: Sequence[int] | None = None,
        algorithm: str = "auto",
        library: Library | None = None,
    ) -> Buffer:
        """Copy the root's buffer to all members, in place."""
        return self._collective("broadcast", buffer, group, algorithm, library, root=root)

    def reduce_to(
        self,
        buffer: Buffer,
        root: int,
        op: str = "sum",
        *,
        group: Sequence[int] | None = None,
        algorithm: str = "auto",
        library: Library | None = None,
    ) -> Buffer:
        """Reduce all members' buffers, with the result on the root alone.

        The other members' buffers are then undefined.
        """
        return self._collective("reduce", buffer, group, algorithm, library, op=op, root=root)

    def gather(
        self,
        buffer: Buffer,
        root: int,
        *,
        group: Sequence[int] | None = None,
        algorithm: str = "auto",
        library: Library | None = None,
    ) -> Buffer:
        """Copy each member's own part to the root."""
        return self._collective("gather", buffer, group, algorithm, library, root=root)

    def scatter(
        self,
        buffer: Buffer,
        root: int,
        *,
        group: Sequence[int] | None = None,
        algorithm: str = "auto",
        library: Library | None = None,
    ) -> Buffer:
        """Copy the root's parts to their members, and return this member's part."""
        self._collective("scatter", buffer, group, algorithm, library, root=root)
        return self._own_part(buffer, group)

    def all_to_all(
        self,
        buffer: Buffer,
        into: Buffer | None = None,
        *,
        group: Sequence[int] | None = None,
        algorithm: str = "auto",
        library: Library | None = None,
    ) -> Buffer:
        """Exchange parts: part `j` of member `i` becomes part `i` of the result on member `j`."""
        self._recorder.check(buffer)
        target = self.alloc(buffer.elements, buffer.dtype) if into is None else into
        self._collective("all_to_all", buffer, group, algorithm, library, into=target)
        return target

    def barrier(self, *, group: Sequence[int] | None = None) -> None:
        """Order ops across the group: whatever follows on any member runs after whatever precedes on all members."""
        token = self.fill(self.alloc(1, "f32"), 0)
        self._recorder.draft.builder.fence(self._recorder.rank)
        self.copy(token, token_after := self.alloc(1, "f32"))
        self.all_reduce(token_after, "max", group=group, algorithm="halving_doubling")
        self._recorder.draft.builder.fence(self._recorder.rank)
        self.copy(token_after)

    def all_gather_variable(
        self, buffers: Sequence[Buffer], count: Buffer, *, group: Sequence[int] | None = None
    ) -> list[tuple[list[Buffer], Buffer]]:
        """Gather the first `count` elements (one i64, known at run time) of each of `buffers` from every member, around a ring.

        Returns:
            For each member: its buffers, each as long as the one passed, and its count. Elements beyond the count are
            undefined.
        """
        self._recorder.check(count, *buffers)
        members = self._members(group)
        n, own = len(members), members.index(self._recorder.rank)
        counts = self.alloc(n, "i64")
        self.copy(count, counts[own : own + 1])
        self.all_gather(counts, group=members, algorithm="direct")
        gathered: list[list[Buffer]] = [
            list(buffers) if at == own else [self.alloc(each.elements, each.dtype) for each in buffers]
            for at in range(n)
        ]
        after, before = members[(own + 1) % n], members[own - 1]
        for step in range(n - 1):
            leaving, coming = (own - step) % n, (own - step - 1) % n
            for each in gathered[leaving]:
                self.send(each, after, count=counts[leaving : leaving + 1])
            for each in gathered[coming]:
                self.recv(each, before, count=counts[coming : coming + 1])
        return [(gathered[at], counts[at : at + 1]) for at in range(n)]

    def _members(self, group: Sequence[int] | None) -> list[int]:
        world = self._recorder.draft.topology.world
        members = list(range(world)) if group is None else list(group)
        known = all(isinstance(each, int) and 0 <= each < world for each in members)
        if not known or len(set(members)) != len(members) or self._recorder.rank not in members:
            raise sources.refusal(
                f"rank {self._recorder.rank} calls a collective over {members}\n"
                f"hint: a group lists ranks below {world}, once each, and only its members call"
            )
        return members

    def _own_part(self, buffer: Buffer, group: Sequence[int] | None) -> Buffer:
        members = self._members(group)
        return self.split(buffer, len(members))[members.index(self._recorder.rank)]

    def _collective(
        self,
        what: str,
        buffer: Buffer,
        group: Sequence[int] | None,
        algorithm: str,
        library: Library | None,
        *,
        op: str = "sum",
        root: int | None = None,
        into: Buffer | None = None,
        sizes: Sequence[int] | None = None,
        base: int = 4,
        servers: int | None = None,
    ) -> Buffer:
        self._recorder.check(buffer, *([] if into is None else [into]))
        members = self._members(group)
        if op not in ("sum", "mean", "min", "max"):
            raise sources.refusal(f"there is no reduction `{op}`\nhint: sum, mean, min or max")
        if root is not None and root not in members:
            raise sources.refusal(f"the root, rank {root}, is not in the group {members}")
        draft = self._recorder.draft
        numbers: tuple[int, ...]
        if library is not None:
            libraries.check(library, algorithm)
            draft.libraries.add(library)
            name, numbers = f"library:{library}", ()
        elif algorithm == "auto":
            name, numbers = draft.choose(what, members, buffer)
        elif algorithm in RUN:
            name = algorithm
            numbers = algorithms.numbers(
                algorithm, members, draft.topology, sizes=sizes, base=base, servers=servers
            )
        else:
            known = ", ".join(RUN)
            raise sources.refusal(f"there is no algorithm `{algorithm}`\nhint: auto, {known}")
        # Libraries only reduce; the factor is applied here.
        scaled = op == "mean" and library is None
        draft.builder.collective(
            self._recorder.rank,
            what,
            buffer.place,
            members=members,
            op="sum" if op == "mean" else op,
            scale=1.0 / len(members) if scaled else 1.0,
            algorithm=name,
            numbers=numbers,
            root=root,
            dst=None if into is None else into.place,
            source=sources.line(),
        )
        if op == "mean" and not scaled and root in (None, self._recorder.rank):
            self.scale(
                self._own_part(buffer, group) if what == "reduce_scatter" else buffer, 1.0 / len(members)
            )
        return buffer
