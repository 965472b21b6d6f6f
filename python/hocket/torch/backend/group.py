"""`Group`: a process group of `torch.distributed`, each method a collective as torch defines it.

This file turns tensors into bytes and orders collectives; `collectives` moves the bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import Work

from hocket.torch.backend import reductions, sparse, tensors
from hocket.torch.backend.collectives import Collectives
from hocket.torch.backend.configured import Configured, errors_as_torch
from hocket.torch.backend.messages import TAG_BITS, TAG_MASK
from hocket.torch.backend.overloads import (
    INPUT,
    INPUTS,
    LISTS_IN,
    LISTS_OUT,
    OP,
    OUTPUT,
    OUTPUTS,
    ROOT,
    SPLITS_IN,
    SPLITS_OUT,
    TENSORS,
    overloaded,
)
from hocket.torch.backend.reductions import Reduction
from hocket.torch.backend.staging import Visit
from hocket.torch.backend.tasks import DONE, Task, Tasks
from hocket.torch.uncompiled import uncompiled_methods

Tensors = Sequence[torch.Tensor]
Act = Callable[[Collectives, Tensors, Tensors], None]
"""Collective of tensors of the CPU: those that it reads, and those that it writes."""


@uncompiled_methods
class Group(Configured):
    """Process group; `init_process_group("hocket")` and `new_group` create it (`creation`)."""

    def __init__(self, opts: Any, *, spans_world: bool) -> None:
        """Start without members; `join` brings them."""
        super().__init__(opts, spans_world=spans_world)
        self._batch: list[Task] | None = None
        self._calls = 0
        self._last_reduction: tuple[torch.dtype, Any, int, Reduction] | None = None

    @overloaded(c10d.BroadcastOptions, [TENSORS], ROOT)
    def broadcast(self, buffers: Sequence[torch.Tensor], opts: Any) -> Work:
        """Broadcast the root's tensor."""

        own = [buffers[opts.rootTensor]]

        def act(group: Collectives, _reads: Tensors, writes: Tensors) -> None:
            with tensors.contiguous(writes, written=True) as (dense,):
                group.broadcast(tensors.lend(dense), opts.rootRank)

        sent = own if self.rank() == opts.rootRank else []
        return self._run("broadcast", act, sent, own, opts, result=buffers, in_place=True)

    @overloaded(c10d.AllreduceOptions, [TENSORS], OP)
    def allreduce(self, buffers: Sequence[torch.Tensor], opts: Any) -> Work:
        """Reduce in place."""
        if buffers and buffers[0].is_sparse:
            if opts.reduceOp != dist.ReduceOp.SUM:
                name = reductions.name_of(opts.reduceOp)
                raise TypeError(
                    f"backend hocket has no {name} of sparse tensors, only SUM\nhint: tensor.to_dense()"
                )
            sparse.check(buffers)

            def add(group: Collectives, _reads: Tensors, _writes: Tensors) -> None:
                sparse.all_reduce(group, buffers, self.size())

            return self._run("all_reduce", add, [], [], opts, result=buffers)
        op = opts.reduceOp
        hows = [self._reduction(buffer, op) for buffer in buffers]

        def act(group: Collectives, _reads: Tensors, writes: Tensors) -> None:
            for buffer, how in zip(writes, hows, strict=True):
                how.run(group.all_reduce, buffer, written=True)

        return self._run("all_reduce", act, buffers, buffers, opts)

    @overloaded(c10d.AllreduceCoalescedOptions, [TENSORS])
    def allreduce_coalesced(self, buffers: Sequence[torch.Tensor], opts: Any) -> Work:
        """Reduce each tensor, in place."""
        work: Work = self.allreduce(buffers, opts)
        return work

    @overloaded(c10d.ReduceOptions, [TENSORS], ROOT, OP)
    def reduce(self, buffers: Sequence[torch.Tensor], opts: Any) -> Work:
        """Reduce into the root's tensor; the others keep theirs."""
        hows = [self._reduction(buffer, opts.reduceOp) for buffer in buffers]
        root, takes = opts.rootRank, self.rank() == opts.rootRank

        def act(group: Collectives, reads: Tensors, _writes: Tensors) -> None:
            for buffer, how in zip(reads, hows, strict=True):
                how.run(partial(group.reduce, root=root), buffer, written=takes)

        return self._run(
            "reduce", act, buffers, buffers if takes else [], opts, result=buffers, in_place=True
        )

    @overloaded(c10d.AllgatherOptions, [LISTS_OUT, INPUTS])
    def allgather(
        self,
        outputs: Sequence[Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        opts: Any,
    ) -> Task:
        """Gather every rank's tensor, by rank."""

        for gathered, own in zip(outputs, inputs, strict=True):
            tensors.check_same_dtype(gathered, own)

        def act(group: Collectives, reads: Tensors, writes: Tensors) -> None:
            rest = iter(writes)
            for own, of_rank in zip(reads, outputs, strict=True):
                with tensors.between([own], list(itertools.islice(rest, len(of_rank)))) as ((dense,), into):
                    group.all_gather(tensors.lend(dense), tensors.lend_all(into))

        writes = [each for of_rank in outputs for each in of_rank]
        return self._run("all_gather", act, inputs, writes, opts, result=outputs[0])

    @overloaded(c10d.AllgatherOptions, [LISTS_OUT, INPUTS])
    def allgather_coalesced(
        self,
        outputs: Sequence[Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        opts: Any,
    ) -> Work:
        """Gather every rank's tensors: `outputs[rank][i]` becomes tensor `i` of `rank`."""
        by_input = [[of_rank[at] for of_rank in outputs] for at in range(len(inputs))]
        return Tasks(
            [self.allgather([gathered], [own], opts) for gathered, own in zip(by_input, inputs, strict=True)]
        )

    @overloaded(c10d.AllgatherOptions, [OUTPUT, INPUT])
    def all_gather_single(self, output: torch.Tensor, own: torch.Tensor, opts: Any) -> Task:
        """Gather every rank's tensor, concatenated."""
        self._check_parts(output, own.numel(), "gathered")

        def act(group: Collectives, reads: Tensors, writes: Tensors) -> None:
            with tensors.between(reads, writes) as ((dense,), (into,)):
                group.all_gather(tensors.lend(dense), tensors.lend_all(self._parts(into)))

        return self._run("_all_gather_base", act, [own], [output], opts)

    @overloaded(c10d.AllgatherOptions, [OUTPUTS, INPUTS])
    def all_gather_single_coalesced(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        opts: Any,
    ) -> Work:
        """Gather each tensor, concatenated by rank."""
        return Tasks(
            [self.all_gather_single(output, own, opts) for output, own in zip(outputs, inputs, strict=True)]
        )

    @overloaded(c10d.GatherOptions, [LISTS_OUT, INPUTS], ROOT)
    def gather(
        self,
        outputs: Sequence[Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        opts: Any,
    ) -> Work:
        """Gather every rank's tensor, by rank, at the root."""
        gathered = list(outputs[0]) if outputs and self.rank() == opts.rootRank else []
        if self.rank() == opts.rootRank:
            tensors.check_same_dtype(gathered, inputs[0])

        def act(group: Collectives, reads: Tensors, writes: Tensors) -> None:
            with tensors.between(reads, writes) as ((dense,), into):
                group.gather(tensors.lend(dense), tensors.lend_all(into), opts.rootRank)

        return self._run("gather", act, inputs, gathered, opts)

    @overloaded(c10d.GatherOptions, [OUTPUT, INPUT], ROOT)
    def gather_single(self, output: torch.Tensor, own: torch.Tensor, opts: Any) -> Work:
        """Gather every rank's tensor, concatenated, at the root; only the root uses `output`."""
        if self.rank() != opts.rootRank:
            work: Work = self.gather([], [own], opts)
            return work
        self._check_parts(output, own.numel(), "gathered")

        def act(group: Collectives, reads: Tensors, writes: Tensors) -> None:
            with tensors.between(reads, writes) as ((dense,), (into,)):
                group.gather(tensors.lend(dense), tensors.lend_all(self._parts(into)), opts.rootRank)

        return self._run("gather", act, [own], [output], opts)

    @overloaded(c10d.ScatterOptions, [OUTPUTS, LISTS_IN], ROOT)
    def scatter(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[Sequence[torch.Tensor]],
        opts: Any,
    ) -> Work:
        """Receive this rank's tensor from the root."""
        scattered = list(inputs[0]) if inputs and self.rank() == opts.rootRank else []
        if self.rank() == opts.rootRank:
            tensors.check_same_dtype(scattered, outputs[0])

        def act(group: Collectives, reads: Tensors, writes: Tensors) -> None:
            with tensors.between(reads, writes) as (dense, (into,)):
                group.scatter(tensors.lend_all(dense), tensors.lend(into), opts.rootRank)

        return self._run("scatter", act, scattered, outputs, opts)

    @overloaded(c10d.ReduceScatterOptions, [OUTPUTS, LISTS_IN], OP)
    def reduce_scatter(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[Sequence[torch.Tensor]],
        opts: Any,
    ) -> Work:
        """Reduce the tensors that all ranks have for this one."""
        hows = [self._reduction(output, opts.reduceOp) for output in outputs]

        def act(group: Collectives, reads: Tensors, writes: Tensors) -> None:
            rest = iter(reads)
            for output, given, how in zip(writes, inputs, hows, strict=True):
                self._reduce_scatter(group, list(itertools.islice(rest, len(given))), output, how)

        reads = [each for pieces in inputs for each in pieces]
        return self._run("reduce_scatter", act, reads, outputs, opts)

    @overloaded(c10d.ReduceScatterOptions, [OUTPUT, INPUT], OP)
    def reduce_scatter_single(self, output: torch.Tensor, whole: torch.Tensor, opts: Any) -> Task:
        """Reduce this rank's part."""
        self._check_parts(whole, output.numel(), "scattered")
        how = self._reduction(output, opts.reduceOp)

        def act(group: Collectives, reads: Tensors, writes: Tensors) -> None:
            with tensors.contiguous(reads, written=False) as (dense,):
                self._reduce_scatter(group, self._parts(dense), writes[0], how)

        return self._run("_reduce_scatter_base", act, [whole], [output], opts)

    @overloaded(c10d.ReduceScatterOptions, [OUTPUTS, INPUTS], OP)
    def reduce_scatter_single_coalesced(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        opts: Any,
    ) -> Work:
        """Reduce this rank's part of each tensor."""
        return Tasks(
            [self.reduce_scatter_single(out, whole, opts) for out, whole in zip(outputs, inputs, strict=True)]
        )

    @overloaded(c10d.AllToAllOptions, [OUTPUTS, INPUTS])
    def alltoall(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        opts: Any,
    ) -> Work:
        """Send tensor *i* to rank *i*."""

        def act(group: Collectives, reads: Tensors, writes: Tensors) -> None:
            with tensors.between(reads, writes) as (dense, into):
                group.all_to_all(tensors.lend_all(dense), tensors.lend_all(into))

        return self._run("all_to_all", act, inputs, outputs, opts)

    @overloaded(c10d.AllToAllOptions, [OUTPUT, INPUT, SPLITS_OUT, SPLITS_IN])
    def all_to_all_single(  # torch's signature
        self,
        output: torch.Tensor,
        whole: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any,
    ) -> Work:
        """Send part *i* of the first dimension to rank *i*."""
        sizes = [
            tensors.lengths(tensor, splits, self.size())
            for tensor, splits in ((output, output_splits), (whole, input_splits))
        ]

        def act(group: Collectives, reads: Tensors, writes: Tensors) -> None:
            with tensors.between(reads, writes) as ((dense,), (into,)):
                group.all_to_all(
                    tensors.lend_all(dense.split(sizes[1])), tensors.lend_all(into.split(sizes[0]))
                )

        return self._run("all_to_all_single", act, [whole], [output], opts)

    @overloaded(c10d.BarrierOptions)
    def barrier(self, opts: Any) -> Work:
        """Return after every member has arrived."""
        return self._run("barrier", lambda group, _reads, _writes: group.barrier(), [], [], opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Raise RuntimeError on rank 0 with the names of ranks that do not arrive in time."""
        limit = timedelta(seconds=self._timeout_s) if timeout is None else timeout
        self.communicator.monitored.meet(limit, wait_all_ranks=wait_all_ranks)

    # torch's names before 2.15, which some programs still use.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def send(self, buffers: Sequence[torch.Tensor], to: int, tag: int) -> Work:
        """Send to a rank of the group; a tensor of the CPU may be overwritten at once, one of a device by work after `wait`."""
        device = tensors.device_of(buffers, "send")
        with errors_as_torch():
            now = self.communicator
            mail = now.node.messages
            rank, number = now.ranks[to], self._tag(tag)
            if device is not None:
                return self._note(mail.send_staged(rank, number, buffers[0], device, self._timeout_s))
            return self._note(mail.send(rank, number, buffers[0], self._timeout_s))

    def recv(self, buffers: Sequence[torch.Tensor], source: int, tag: int) -> Work:
        """Receive from a rank of the group."""
        return self._receive(self.communicator.ranks[source], buffers, tag)

    def recv_anysource(self, buffers: Sequence[torch.Tensor], tag: int) -> Work:
        """Receive from the first sender; the work names the sender."""
        return self._receive(None, buffers, tag)

    def start_coalescing(self, _device: torch.device) -> None:
        """Combine the following calls into one work."""
        self._batch = []

    def end_coalescing(self, _device: torch.device) -> Work:
        """Return the work of all calls since `start_coalescing`."""
        batch, self._batch = self._batch or [], None
        return Tasks(batch)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time-out of calls that give none."""
        self._timeout_s = timeout.total_seconds()

    def _get_sequence_number_for_group(self) -> int:
        return self._calls

    def _set_sequence_number_for_group(self) -> None:
        self._calls = 0

    def _receive(self, source: int | None, buffers: Sequence[torch.Tensor], tag: int) -> Work:
        device = tensors.device_of(buffers, "recv")
        with errors_as_torch():
            now = self.communicator
            mail = now.node.messages
            return self._note(
                mail.receive(source, self._tag(tag), buffers[0], now.ranks, self._timeout_s, device=device)
            )

    def _run(
        self,
        call: str,
        act: Act,
        reads: Tensors,
        writes: Tensors,
        opts: Any,
        *,
        result: Tensors | None = None,
        in_place: bool = False,
    ) -> Task:
        """Run a collective in its turn.

        `call`: its name in dumps; `result`: of the work; default: `writes`. `in_place`: in dumps, the result stands for what the
        call reads and writes on each rank, since `fr_trace` compares ranks.
        """
        device = tensors.device_of(itertools.chain(reads, writes), call)
        self._calls += 1
        own_s = opts.timeout.total_seconds()
        limit_s = own_s if own_s > 0 else self._timeout_s
        now = self.communicator
        noted = (result or [], result or []) if in_place else (reads, writes)
        entry = None if now.record is None else now.record.called(call, *noted, limit_s)
        visit = None
        if device is None:
            due = partial(_moved, act, reads, writes)
        else:
            with errors_as_torch():
                visit = Visit(now.node.staging.at(device), reads, writes)
            due = partial(_staged, act, visit, limit_s)
        # Options of older PyTorch do not tell.
        if (
            not getattr(opts, "asyncOp", True)
            and self._batch is None
            and now.works.now(now.move, call, limit_s, due, entry)
        ):
            if visit is not None:
                visit.received()
            return DONE
        step = partial(now.move, call, limit_s, due, entry)
        return self._note(now.works.later(step, writes if result is None else result, visit))

    def _note(self, work: Task) -> Task:
        if self._batch is not None:
            self._batch.append(work)
        return work

    def _reduction(self, of: torch.Tensor, op: Any) -> Reduction:
        last, size = self._last_reduction, self._size
        if last is not None and of.dtype is last[0] and op == last[1] and size == last[2]:
            return last[3]
        found = reductions.reduction(of.dtype, op, size)
        if found.factor is None:  # which is not part of the comparison of `op`
            self._last_reduction = (of.dtype, op.op, size, found)
        return found

    def _reduce_scatter(
        self, group: Collectives, pieces: Sequence[torch.Tensor], output: torch.Tensor, how: Reduction
    ) -> None:
        sizes = [each.numel() for each in pieces]
        if len(sizes) == self._size and min(sizes) < max(sizes) and output.numel() == sizes[self._rank]:
            for root, piece in enumerate(pieces):
                # The root's tensor changes, and the caller keeps what it gave.
                own = piece if root != self._rank else output.detach().copy_(piece.view_as(output))
                how.run(partial(group.reduce, root=root), own, written=root == self._rank)
            return
        with (
            how.carried(pieces, written=False) as dense,
            how.carried([output], read=False, written=True) as (into,),
        ):
            group.reduce_scatter(tensors.lend_all(dense), tensors.lend(into), how.native, how.element)

    def _parts(self, whole: torch.Tensor) -> list[torch.Tensor]:
        return list(whole.view(-1).tensor_split(self.size()))

    def _check_parts(self, whole: torch.Tensor, each: int, what: str) -> None:
        if whole.numel() != each * self.size():
            raise ValueError(
                f"a tensor of {whole.numel()} elements for {self.size()} ranks whose {what} parts have {each}"
            )

    def _tag(self, tag: int) -> int:
        return self.communicator.number << TAG_BITS | (tag & TAG_MASK)


def _moved(act: Act, reads: Tensors, writes: Tensors, mover: Collectives) -> None:
    act(mover, reads, writes)


def _staged(act: Act, visit: Visit, limit_s: float, mover: Collectives) -> None:
    try:
        visit.bring(limit_s)
        act(mover, visit.reads, visit.writes)
        visit.land()
    finally:
        visit.leave()
