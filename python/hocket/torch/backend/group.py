"""`Group`: a process group of `torch.distributed`, each method a collective as torch defines it.

Tensors become bytes here and collectives get their order; what moves them is `collectives`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Backend, Work

import torch
from hocket.errors import Error
from hocket.torch.backend import messages, tensors
from hocket.torch.backend.collectives import Collectives, collectives_of
from hocket.torch.backend.node import Node
from hocket.torch.backend.works import Works, finished

_groups: list[Group] = []
"""Open ones of this process."""


def create(options: Any, _backend_options: object) -> Group:
    """As `torch.distributed.Backend.register_backend` wants it; every member of the group must come."""
    ranks = list(options.global_ranks_in_group)
    try:
        world = next((group.node for group in _groups if group.spans_world), None)
        if ranks and world is not None:
            group = Group(world, ranks, options, spans_world=False)
        else:
            # The default group, or one beside a default group of another backend: it has the wire to itself.
            node = Node(options.store, options.group_rank, options.group_size, options.timeout)
            group = Group(node, list(range(options.group_size)), options, spans_world=not ranks)
    except Error as error:
        raise RuntimeError(str(error)) from error
    _groups.append(group)
    return group


class Group(Backend):
    """Made by `init_process_group("hocket")` and `new_group`."""

    supports_coalescing = True

    def __init__(self, node: Node, ranks: list[int], options: Any, *, spans_world: bool) -> None:
        """Meets the other members through the group's part of torch's store. `ranks`: the group's, as `node` numbers them."""
        super().__init__(options.group_rank, options.group_size)
        self.node, self.spans_world = node, spans_world
        self._ranks = ranks
        self._timeout_s = options.timeout.total_seconds()
        self._works = Works(options.group_id)
        self._batch: list[Work] | None = None
        self._calls = 0
        options.store.set_timeout(options.timeout)
        self._number = _agree_on_number(options)
        self._collectives: Collectives = collectives_of(
            node, self._ranks, options.store, self._number, self._timeout_s
        )

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        """`hocket`."""
        return "hocket"

    def broadcast(self, buffers: Sequence[torch.Tensor], options: Any) -> Work:
        """The root's tensor becomes everyone's."""

        def act(group: Collectives) -> None:
            with tensors.contiguous(buffers, written=True) as dense:
                group.broadcast(tensors.lend(dense[options.rootTensor]), options.rootRank)

        return self._run(buffers, act, buffers, options)

    def allreduce(self, buffers: Sequence[torch.Tensor], options: Any) -> Work:
        """In place."""
        return self._run(
            buffers, lambda group: self._reduce(group, buffers, options.reduceOp), buffers, options
        )

    def allreduce_coalesced(self, buffers: Sequence[torch.Tensor], options: Any) -> Work:
        """Each of them, in place."""
        return self.allreduce(buffers, options)

    def allreduce_sparse(self, buffers: Sequence[torch.Tensor], options: Any) -> Work:
        """Of sparse COO tensors, in place: the entries of all, added up."""
        if options.reduceOp != dist.ReduceOp.SUM:
            raise TypeError("backend hocket only sums sparse tensors")

        def act(group: Collectives) -> None:
            for sparse in buffers:
                own = sparse.coalesce()
                count = torch.tensor([own._nnz()])
                counts = [torch.zeros_like(count) for _ in self._ranks]
                group.all_gather(tensors.lend(count), tensors.lend_all(counts))
                parts = []
                for each in (own.indices().t().contiguous(), own.values().contiguous()):
                    gathered = [each.new_empty((int(n), *each.shape[1:])) for n in counts]
                    group.all_gather(tensors.lend(each), tensors.lend_all(gathered))
                    parts.append(torch.cat(gathered))
                total = torch.sparse_coo_tensor(parts[0].t(), parts[1], sparse.shape).coalesce()
                sparse.copy_(total)

        return self._run([], act, buffers, options)

    def reduce(self, buffers: Sequence[torch.Tensor], options: Any) -> Work:
        """Into the root's tensor."""

        def act(group: Collectives) -> None:
            self._reduce(group, buffers, options.reduceOp, options.rootRank)

        return self._run(buffers, act, buffers, options)

    def allgather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], options: Any
    ) -> Work:
        """Everyone's tensor, by rank."""

        def act(group: Collectives) -> None:
            for gathered, own in zip(outputs, inputs, strict=True):
                _same_shapes(gathered, own)
                with (
                    tensors.contiguous([own], written=False) as (dense,),
                    tensors.contiguous(gathered, written=True) as into,
                ):
                    group.all_gather(tensors.lend(dense), tensors.lend_all(into))

        return self._run([*inputs, *outputs[0]], act, outputs[0], options)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], options: Any
    ) -> Work:
        """`outputs[rank][i]` becomes tensor `i` of `rank`."""
        by_input = [[of_rank[at] for of_rank in outputs] for at in range(len(inputs))]
        works = [
            self.allgather([gathered], [own], options) for gathered, own in zip(by_input, inputs, strict=True)
        ]
        return works[-1] if works else finished([])

    def all_gather_single(self, output: torch.Tensor, own: torch.Tensor, options: Any) -> Work:
        """Everyone's tensor, one after the other."""
        self._check_parts(output, own.numel(), "gathered")

        def act(group: Collectives) -> None:
            with (
                tensors.contiguous([own], written=False) as (dense,),
                tensors.contiguous([output], written=True) as (into,),
            ):
                group.all_gather(tensors.lend(dense), tensors.lend_all(self._parts(into)))

        return self._run([own, output], act, [output], options)

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], options: Any
    ) -> Work:
        """Each of them."""
        works = [
            self.all_gather_single(output, own, options) for output, own in zip(outputs, inputs, strict=True)
        ]
        return works[-1] if works else finished([])

    def gather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], options: Any
    ) -> Work:
        """Everyone's tensor, by rank, at the root."""
        gathered = list(outputs[0]) if outputs and self.rank() == options.rootRank else []
        if self.rank() == options.rootRank:
            _same_shapes(gathered, inputs[0])

        def act(group: Collectives) -> None:
            with (
                tensors.contiguous(inputs, written=False) as (dense,),
                tensors.contiguous(gathered, written=True) as into,
            ):
                group.gather(tensors.lend(dense), tensors.lend_all(into), options.rootRank)

        return self._run([*inputs, *gathered], act, gathered, options)

    def scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], options: Any
    ) -> Work:
        """Our tensor of the root's."""
        scattered = list(inputs[0]) if inputs and self.rank() == options.rootRank else []
        if self.rank() == options.rootRank:
            _same_shapes(scattered, outputs[0])

        def act(group: Collectives) -> None:
            with (
                tensors.contiguous(scattered, written=False) as dense,
                tensors.contiguous(outputs, written=True) as (into,),
            ):
                group.scatter(tensors.lend_all(dense), tensors.lend(into), options.rootRank)

        return self._run([*scattered, *outputs], act, outputs, options)

    def reduce_scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], options: Any
    ) -> Work:
        """The reduction of everyone's tensor for us."""

        def act(group: Collectives) -> None:
            for output, pieces in zip(outputs, inputs, strict=True):
                self._reduce_scatter(group, pieces, output, options.reduceOp)

        return self._run([*outputs, *inputs[0]], act, outputs, options)

    def reduce_scatter_single(self, output: torch.Tensor, whole: torch.Tensor, options: Any) -> Work:
        """Our part of the reduction."""
        self._check_parts(whole, output.numel(), "scattered")

        def act(group: Collectives) -> None:
            with tensors.contiguous([whole], written=False) as (dense,):
                self._reduce_scatter(group, self._parts(dense), output, options.reduceOp)

        return self._run([whole, output], act, [output], options)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], options: Any
    ) -> Work:
        """Each of them."""
        works = [
            self.reduce_scatter_single(out, whole, options)
            for out, whole in zip(outputs, inputs, strict=True)
        ]
        return works[-1] if works else finished([])

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], options: Any) -> Work:
        """Tensor *i* goes to rank *i*."""

        def act(group: Collectives) -> None:
            with (
                tensors.contiguous(inputs, written=False) as dense,
                tensors.contiguous(outputs, written=True) as into,
            ):
                group.all_to_all(tensors.lend_all(dense), tensors.lend_all(into))

        return self._run([*inputs, *outputs], act, outputs, options)

    def all_to_all_single(  # torch's signature
        self,
        output: torch.Tensor,
        whole: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        options: Any,
    ) -> Work:
        """Part *i* of the first dimension goes to rank *i*."""
        sizes = [
            _splits(tensor, splits, self.size())
            for tensor, splits in ((output, output_splits), (whole, input_splits))
        ]

        def act(group: Collectives) -> None:
            with (
                tensors.contiguous([whole], written=False) as (dense,),
                tensors.contiguous([output], written=True) as (into,),
            ):
                group.all_to_all(
                    tensors.lend_all(dense.split(sizes[1])), tensors.lend_all(into.split(sizes[0]))
                )

        return self._run([whole, output], act, [output], options)

    def barrier(self, options: Any) -> Work:
        """Returns after every member has come."""
        return self._run([], lambda group: group.barrier(), [], options)

    def send(self, buffers: Sequence[torch.Tensor], to: int, tag: int) -> Work:
        """To a rank of the group; the tensor may be written at once."""
        tensors.check(buffers)
        with _as_torch():
            return self._note(
                messages.send(self.node.engine, self._ranks[to], self._tag(tag), buffers[0], self._timeout_s)
            )

    def recv(self, buffers: Sequence[torch.Tensor], source: int, tag: int) -> Work:
        """From a rank of the group."""
        return self._receive(self._ranks[source], buffers, tag)

    def recv_anysource(self, buffers: Sequence[torch.Tensor], tag: int) -> Work:
        """From whoever sends first. torch does not let a work made in Python say who that was."""
        return self._receive(None, buffers, tag)

    def start_coalescing(self) -> None:
        """What comes is one work."""
        self._batch = []

    def end_coalescing(self) -> Work:
        """The work of all since `start_coalescing`."""
        batch, self._batch = self._batch or [], None
        return _All(batch)

    def shutdown(self) -> None:
        """The last group of the process leaves the job."""
        self._works.close()
        if self in _groups:
            _groups.remove(self)
        if not any(group.node is self.node for group in _groups):
            self.node.close()

    def abort(self) -> None:
        """Tells all ranks that this one gives up."""
        self.node.engine.abort(f"rank {self.node.job.rank} aborted a process group")

    def set_timeout(self, timeout: timedelta) -> None:
        """Of calls without one of their own."""
        self._timeout_s = timeout.total_seconds()

    def _get_sequence_number_for_group(self) -> int:
        return self._calls

    def _set_sequence_number_for_group(self) -> None:
        self._calls = 0

    def _receive(self, source: int | None, buffers: Sequence[torch.Tensor], tag: int) -> Work:
        tensors.check(buffers)
        with _as_torch():
            return self._note(
                messages.receive(self.node.engine, source, self._tag(tag), buffers[0], self._timeout_s)
            )

    def _run(
        self,
        moved: Sequence[torch.Tensor],
        act: Callable[[Collectives], None],
        result: Sequence[torch.Tensor],
        options: Any,
    ) -> Work:
        tensors.check(moved)
        self._calls += 1
        own_s = options.timeout.total_seconds()
        limit_s = own_s if own_s > 0 else self._timeout_s

        def bounded() -> None:
            self._collectives.set_timeout(limit_s)
            act(self._collectives)

        return self._note(
            self._works.run(bounded, result, at_once=not options.asyncOp and self._batch is None)
        )

    def _note(self, work: Work) -> Work:
        if self._batch is not None:
            self._batch.append(work)
        return work

    def _reduce(
        self, group: Collectives, buffers: Sequence[torch.Tensor], op: Any, root: int | None = None
    ) -> None:
        for buffer in buffers:
            name, element = tensors.reduction(buffer, op)
            with tensors.contiguous([buffer], written=True) as (dense,):
                if root is None:
                    group.all_reduce(tensors.lend(dense), name, element)
                else:
                    group.reduce(tensors.lend(dense), name, element, root)
                if op == dist.ReduceOp.AVG and root in (None, self.rank()):
                    dense.div_(self.size())

    def _reduce_scatter(
        self, group: Collectives, pieces: Sequence[torch.Tensor], output: torch.Tensor, op: Any
    ) -> None:
        name, element = tensors.reduction(output, op)
        with (
            tensors.contiguous(pieces, written=False) as dense,
            tensors.contiguous([output], written=True) as (into,),
        ):
            group.reduce_scatter(tensors.lend_all(dense), tensors.lend(into), name, element)
            if op == dist.ReduceOp.AVG:
                into.div_(self.size())

    def _parts(self, whole: torch.Tensor) -> list[torch.Tensor]:
        return list(whole.view(-1).tensor_split(self.size()))

    def _check_parts(self, whole: torch.Tensor, each: int, what: str) -> None:
        if whole.numel() != each * self.size():
            raise ValueError(
                f"a tensor of {whole.numel()} elements for {self.size()} ranks whose {what} parts have {each}"
            )

    def _tag(self, tag: int) -> int:
        return self._number << messages.TAG_BITS | (tag & 0xFFFFFFFF)


class _All(Work):
    """Several works as one."""

    def __init__(self, works: list[Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        for work in self._works:
            if timeout is None or timeout.total_seconds() <= 0:
                work.wait()
            else:
                work.wait(timeout)
        return True


@contextlib.contextmanager
def _as_torch() -> Any:
    try:
        yield
    except Error as error:
        raise RuntimeError(str(error)) from error


def _agree_on_number(options: Any) -> int:
    """Of the group among all: tags of different groups never meet."""
    if options.group_rank == 0:
        counter = options.store
        while hasattr(counter, "underlying_store"):
            counter = counter.underlying_store
        options.store.set("hocket/number", str(counter.add("hocket/groups", 1)))
    return int(options.store.get("hocket/number"))


def _same_shapes(pieces: Sequence[torch.Tensor], own: torch.Tensor) -> None:
    for piece in pieces:
        if piece.dtype != own.dtype:
            raise TypeError(f"a tensor of {piece.dtype} among those of {own.dtype}")


def _splits(tensor: torch.Tensor, splits: Sequence[int], size: int) -> list[int]:
    length = tensor.size(0) if tensor.dim() else 1
    if not splits:
        if length % size:
            raise ValueError(f"a first dimension of {length} is not divisible by {size} ranks")
        return [length // size] * size
    if len(splits) != size or sum(splits) != length:
        raise ValueError(f"splits {list(splits)} of a first dimension of {length} for {size} ranks")
    return list(splits)
