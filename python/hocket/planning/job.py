"""`Job`: what a builder knows of the model and the cluster, and how it makes buckets of variables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property

from hocket.artefacts.network import Network
from hocket.artefacts.plan import (
    AllReduce,
    Bucket,
    Codec,
    Direct,
    Gathered,
    Owned,
    Owner,
    Plan,
    Route,
    TwoLevel,
)
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.planning import rows
from hocket.planning.buckets import backward_order
from hocket.planning.hosts import Host
from hocket.planning.making import Line, Maker, Part, Variable
from hocket.planning.question import Question
from hocket.planning.traced import topology_of
from hocket.policy.bucketing import Closing, partition
from hocket.policy.topology import Topology


class Job:
    """Model, ranks and network that a plan is for."""

    def __init__(self, question: Question) -> None:
        """Take the planner's question."""
        self._question = question
        self._maker = Maker(question)

    # The model

    @property
    def profile(self) -> Profile:
        """The model's profile: variables, and the times of forward and backward."""
        return self._question.profile

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables, in the order of the model."""
        return self.profile.gradients

    @cached_property
    def dense(self) -> tuple[Variable, ...]:
        """Variables whose gradients are dense, in the order of the model."""
        return tuple(each for each in self.variables if not rows.travels(each))

    @cached_property
    def sparse(self) -> tuple[Variable, ...]:
        """Variables whose gradients are sparse, in the order of the model."""
        return tuple(each for each in self.variables if rows.travels(each))

    def backward(self, variables: Iterable[Variable]) -> list[Variable]:
        """Return these variables in the order in which backward makes their gradients."""
        return backward_order(list(variables))

    def few_rows(self, variable: Variable) -> bool:
        """Return whether a variable may travel as rows, and a step touches so few that these are fewer bytes than all of it."""
        return rows.may(variable, self.workers)

    # The cluster

    @property
    def world(self) -> int:
        """Number of ranks, with helpers."""
        return len(self.network.hosts)

    @property
    def workers(self) -> int:
        """Number of ranks that train, which are the first ones."""
        return self._question.workers

    @property
    def helpers(self) -> range:
        """Ranks that do not train and may own."""
        return range(self.workers, self.world)

    @property
    def network(self) -> Network:
        """Links between ranks: `bit_per_s(from, to)`, `path(from, to)`, `slow_pairs()`, `cards`."""
        return self._question.graph

    @property
    def topology(self) -> Topology:
        """Hosts, racks and links as policies see them."""
        return topology_of(self.network)

    @property
    def promise(self) -> Promise:
        """Limits on what the plan does to results; `promise.codec` is the codec that it may have, if any."""
        return self._question.promise

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Hosts of the ranks that train, in the order of their first ranks."""
        return self._question.hosts

    @cached_property
    def racks(self) -> dict[str, tuple[int, ...]]:
        """Ranks that train, by the name of their rack; put after one another they are an order rack by rack."""
        found: dict[str, tuple[int, ...]] = {}
        for host in self.hosts:
            found[host.rack] = found.get(host.rack, ()) + host.ranks
        return found

    # Routes and buckets

    @property
    def ring(self) -> AllReduce:
        """All-reduce around all ranks; of ranks on a single host, in place."""
        return AllReduce(algorithm="in_place" if len(set(self.network.hosts)) == 1 else "ring")

    def owned(self, owners: Iterable[int] | Mapping[int, int], *, stations: Sequence[int] = ()) -> Owned:
        """Return the route by owners: ranks with equal shares, or each with a whole number of shares.

        `stations`: sizes of groups of ranks, in the bucket's order, that push and pull through their first.
        """
        shares = owners if isinstance(owners, Mapping) else dict.fromkeys(owners, 1)
        return Owned(
            owners=tuple(Owner(rank=rank, share=share) for rank, share in shares.items()),
            via=TwoLevel(stations=tuple(stations)) if stations else Direct(),
        )

    def rows(self, variable: Variable, algorithm: str = "ring") -> Gathered:
        """Return the route of one variable by the rows that a step touches."""
        return rows.route(variable, self.workers, algorithm)

    def groups(
        self,
        variables: Iterable[Variable],
        *,
        size_bytes: int | None = None,
        count: int | None = None,
        apart: Callable[[Variable], Hashable] = lambda _: None,
    ) -> list[list[Variable]]:
        """Put variables into groups of one element type, in their order.

        Args:
            variables: all of them.
            size_bytes: a group closes when it has so many; 0: each variable by itself.
            count: or so many variables.
            apart: variables with different values share no group.
        """
        return partition(
            list(variables),
            Closing(size_bytes if count is None else count),
            kind=lambda each: (each.dtype, apart(each)),
            size=lambda each: each.bytes if count is None else 1,
        )

    def bucket(
        self,
        variables: Part | Iterable[Part],
        route: Route,
        *,
        order: Sequence[int] | None = None,
        codec: Codec = "none",
        codec_links: Sequence[tuple[int, int]] | None = None,
        priority: int = 0,
        chunk_bytes: int | None = None,
        cards: Sequence[int] | None = None,
    ) -> Bucket:
        """Make a bucket of variables, or parts of them, that travel together.

        Args:
            variables: of one element type.
            route: an `AllReduce`, `Owned`, `Gathered`, or `Traced` for a policy.
            order: ranks, in the order in which the route takes them; default: ascending.
            codec: element type of messages between `codec_links`; default of these: slow links, or all between hosts.
            priority: buckets of a lower one go first; among equals, those that are ready first.
            chunk_bytes: size of a message; default: by the slowest link.
            cards: network cards that it may use; default: all.

        Raises UsageError for what no plan may have, and for what the job's promise does not allow.
        """
        return self._maker.made(
            variables,
            route,
            order=order,
            codec=codec,
            codec_links=codec_links,
            priority=priority,
            chunk_bytes=chunk_bytes,
            cards=cards,
        )

    def line(self, bucket: Bucket) -> Line | None:
        """Return the file and line outside Hocket that made a bucket; None: `bucket` has not made it."""
        return self._maker.line(bucket)

    def plan(self, buckets: Sequence[Bucket], label: str) -> Plan:
        """Return a plan of these buckets for the job's ranks, with the strictest promise that they keep."""
        return self._maker.plan(buckets, label)
