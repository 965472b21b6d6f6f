"""Context of a traced handler: the ops, and the facts on which a handler may branch."""

from __future__ import annotations

from collections.abc import Callable

from hocket.errors import PolicyError
from hocket.policy import sources
from hocket.policy.collectives import CollectiveOps
from hocket.policy.handles import Buffer, Gradient
from hocket.policy.observed import Observed, Source, agree, source_of, window_mean
from hocket.policy.policy import Value
from hocket.policy.recorder import Pending, Recorder
from hocket.policy.topology import Link

Enqueue = Callable[[Gradient, int | None], None]


class Context(CollectiveOps):
    """One rank's view while a handler is traced."""

    def __init__(self, recorder: Recorder, enqueue: Enqueue | None) -> None:
        """`enqueue` receives gradients with their priority; None outside `on_tensor_ready`."""
        self._recorder = recorder
        self._enqueue = enqueue

    @property
    def rank(self) -> int:
        """Number of this rank."""
        return self._recorder.rank

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self._recorder.draft.topology.world

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks."""
        return self._recorder.draft.topology.ranks

    @property
    def host(self) -> str:
        """Name of this rank's host."""
        return self._recorder.draft.topology.hosts[self.rank]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each rank."""
        return self._recorder.draft.topology.hosts

    @property
    def local_ranks(self) -> tuple[int, ...]:
        """Ranks of this host."""
        return self._recorder.draft.topology.local_ranks(self.rank)

    @property
    def local_rank(self) -> int:
        """Position of this rank among `local_ranks`."""
        return self.local_ranks.index(self.rank)

    @property
    def rack_ranks(self) -> tuple[int, ...]:
        """Ranks of this rack."""
        return self._recorder.draft.topology.rack_ranks(self.rank)

    @property
    def leader(self) -> int:
        """The first rank of this host."""
        return self.local_ranks[0]

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of each host."""
        return self._recorder.draft.topology.leaders

    @property
    def rack_leaders(self) -> tuple[int, ...]:
        """The first rank of each rack."""
        return self._recorder.draft.topology.rack_leaders

    def link(self, peer: int, source: int | None = None) -> Link:
        """The link from this rank (or from `source`) to `peer`: `.bandwidth` in bit/s, `.latency` in seconds."""
        return self._recorder.draft.topology.link(self.rank if source is None else source, peer)

    def agreed(self, name: str) -> Value:
        """Value on which all ranks agree: one of the policy's `parameters`, with the value last proposed for it."""
        agreed = self._recorder.draft.agreed
        if name not in agreed:
            raise sources.refusal(f"no value `{name}` is agreed\nhint: there are {', '.join(sorted(agreed))}")
        return agreed[name]

    def get(self, name: str, window: int = 10) -> Observed:
        """Mean of this rank's last `window` values of a statistic at the start of the epoch.

        Every use of the mean is guarded.
        """
        rank = self.rank
        return self._recorder.draft.assumptions.observe(
            lambda snapshot: window_mean(snapshot[rank].get(name, ()), window)
        )

    def negotiate(self, value: float | Observed, how: str = "mode") -> float | Observed:
        """Reduce a value of each rank to one for all: `mode`, `min`, `max`, or `leader` (rank 0's).

        All ranks make these calls in the same order.
        """
        recorder, draft = self._recorder, self._recorder.draft
        turn = recorder.negotiations
        recorder.negotiations += 1
        if turn < len(draft.negotiated):
            result = draft.negotiated[turn]
            # The final attempt guards decisions that depend on the result.
            return draft.assumptions.observe(result) if callable(result) else result
        draft.requests[self.rank] = (value, how, sources.where())
        raise Pending

    def backward_order(self, grad: Gradient) -> int:
        """Position in backward: 0 for the gradient that is produced first."""
        return grad.backward_order

    def forward_order(self, grad: Gradient) -> int:
        """Position in forward: 0 for the gradient whose parameter the next forward needs first."""
        return grad.forward_order

    def enqueue(self, grad: Gradient, priority: int | None = None) -> None:
        """Put `grad` into the priority queue, where neighbours are fused.

        A lower priority goes first (default: backward order).
        """
        if self._enqueue is not None and isinstance(grad, Buffer) and not isinstance(grad, Gradient):
            raise sources.refusal(
                "enqueues a part of a gradient: the entries of the queue are whole gradients\n"
                "hint: urgent buckets overtake between chunks already: make the agreed value `chunk_bytes` smaller"
            )
        if self._enqueue is None or not isinstance(grad, Gradient):
            raise sources.refusal(
                "only `on_tensor_ready` enqueues, and only its gradient\n"
                "hint: in `on_buffer_ready` use `cx.all_reduce` or messages"
            )
        self._enqueue(grad, priority)

    def record(self, name: str, value: float) -> None:
        """Refused: a traced handler runs once per epoch."""
        raise sources.refusal(
            f"records `{name}` while it is traced, which happens once per epoch\n"
            f"hint: record in `on_timer`, or call `hocket.torch.record(model, {name}={value!r})` in the script"
        )

    def propose(self, **_changes: Value) -> None:
        """Refused: a traced handler runs when an epoch begins."""
        raise sources.refusal("proposes an epoch while one begins\nhint: propose in `on_timer`")


def settle(values: list[tuple[object, str, str]]) -> float | Source:
    """The result of a negotiation from all ranks' (value, way, place); a source if a value depends on statistics."""
    hows = {how for _, how, _ in values}
    if len(hows) > 1:
        places = ", ".join(dict.fromkeys(place for _, _, place in values))
        raise PolicyError(f"ranks negotiate in different ways ({', '.join(sorted(hows))}): {places}")
    how = hows.pop()
    for value, _, place in values:
        if not isinstance(value, int | float | Observed):
            raise PolicyError(f"{place}: negotiates {value!r}\nhint: numbers are negotiated")
    parts = [source_of(value) for value, _, _ in values]
    if any(isinstance(value, Observed) for value, _, _ in values):
        return lambda snapshot: agree([float(part(snapshot)) for part in parts], how)
    return agree([float(part(())) for part in parts], how)
