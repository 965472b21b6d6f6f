"""Processes of tests of groups whose members change: `reconfigured_scripts.py FOLDER NAME INDEX COUNT`.

They exchange handles through files, as launchers or torchft's lighthouse do over the network, and write what they saw.
"""

import gc
import json
import os
import signal
import sys
import threading
import time
import weakref
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ReconfigureOptions

import hocket.torch as hk
from hocket.errors import Error

PATIENCE = timedelta(seconds=60)
SHORT = timedelta(seconds=2)


class Process:
    """One of `count` processes, with a group."""

    def __init__(self, folder, index, count):
        self.folder, self.index, self.count = Path(folder), index, count
        dist.init_process_group(
            "hocket",
            store=dist.FileStore(str(self.folder / "torch"), count),
            rank=index,
            world_size=count,
            timeout=PATIENCE,
            enable_reconfigure=True,
        )
        self.group = dist.group.WORLD
        self.seen = []

    def told(self, name, value="", of=None):
        """The text of each of the processes `of` under `name`, once all have one; this one's is `value`."""
        (self.folder / f"{name}.{self.index}.part").write_text(value)
        (self.folder / f"{name}.{self.index}.part").rename(self.folder / f"{name}.{self.index}")
        files = [self.folder / f"{name}.{each}" for each in (range(self.count) if of is None else of)]
        deadline_s = time.monotonic() + PATIENCE.total_seconds()
        while not all(file.exists() for file in files):
            assert time.monotonic() < deadline_s, f"{name}: {files}"
            time.sleep(0.005)
        return [file.read_text() for file in files]

    def reconfigure(self, uuid, members, timeout=PATIENCE):
        handles = self.told(f"handles {uuid}", self.group.get_reconfigure_handle(), members)
        dist._reconfigure(uuid, handles, timeout=timeout).wait()
        return [dist.get_rank(), dist.get_world_size()]

    def sum(self, value=None):
        tensor = torch.tensor([float(self.index + 1 if value is None else value)] * 1000)
        dist.all_reduce(tensor)
        assert tensor.eq(tensor[0]).all()
        return tensor[0].item()

    def note(self, act):
        """Note the error of `act`, with what it says of a rank."""
        try:
            act()
        except (RuntimeError, TypeError) as error:
            rank, why = getattr(error, "rank", None), getattr(error, "why", None)
            self.seen.append([type(error).__name__, str(error), rank, None if why is None else str(why)])
        else:
            self.seen.append(None)


def resized(own):
    """The sizes and ranks of torchft's own test, an abort, and the first members again."""
    name = own.group.group_name
    gc.disable()
    nodes = []
    for uuid, members in enumerate(([0, 1, 2], [2, 0], [1, 2, 0])):
        if own.index in members:
            own.seen.append([*own.reconfigure(uuid, members), own.sum()])
            assert own.group is dist.group.WORLD
            assert own.group.group_name == name
            nodes.append(weakref.ref(own.group.node))
        own.told(f"done {uuid}")
    aborted = []
    own.group.register_abort_hook(7, lambda: aborted.append(7))
    own.group.abort()
    own.note(own.sum)
    own.group.unregister_abort_hook(7)
    own.seen += [aborted, [*own.reconfigure(9, [0, 1, 2]), own.sum()]]
    own.group.abort()
    assert aborted == [7]
    # Each maps a terabyte of addresses for every member, of which a process has 128: the collector would come too late.
    assert [node() for node in nodes] == [None] * len(nodes)


def all_calls(own):
    """Calls of each kind, before and after a change of size: what is kept by size must follow."""
    for uuid, members in enumerate(([0, 1, 2], [1, 0])):
        if own.index in members:
            rank, size = own.reconfigure(uuid, members)
            mean = torch.full((10,), float(rank))
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            work = dist.all_reduce(later := torch.full((10,), 1.0), async_op=True)
            gathered = [torch.zeros(2) for _ in range(size)]
            dist.all_gather(gathered, torch.full((2,), float(rank)))
            sent = dist.isend(torch.full((3,), float(rank)), (rank + 1) % size)
            dist.recv(came := torch.zeros(3), (rank - 1) % size)
            sent.wait()
            dist.all_to_all_single(swapped := torch.zeros(size), torch.full((size,), float(rank)))
            dist.broadcast(root := torch.full((2,), float(rank)), src=size - 1)
            work.wait()
            dist.barrier()
            dist.monitored_barrier(timeout=PATIENCE)
            own.seen.append(
                [
                    mean[0].item(),
                    later[0].item(),
                    [each[0].item() for each in gathered],
                    came[0].item(),
                    swapped.tolist(),
                    root[0].item(),
                ]
            )
        own.told(f"done {uuid}")


def loses_last(own):
    """Process 2 is killed within a call; the others go on without it."""
    loses(own, 2)


def loses_first(own):
    """Process 0, at whose store all have met, is killed within a call."""
    loses(own, 0)


def loses(own, victim):
    others = [each for each in range(own.count) if each != victim]
    hooked = threading.Event()
    own.group.register_abort_hook(1, hooked.set)
    own.reconfigure(1, range(own.count))
    own.sum()
    own.told("ready")
    if own.index == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    began_s = time.monotonic()
    own.note(own.sum)
    own.seen += [time.monotonic() - began_s, hooked.is_set()]
    own.seen.append([*own.reconfigure(2, others[::-1]), own.sum()])


def one_does_not_come(own):
    """Two wait for a third, in vain, and then go on without it."""
    handle = own.told("handle", own.group.get_reconfigure_handle())
    if own.index == 1:
        own.told("given up")
        return
    own.note(lambda: dist._reconfigure(1, handle, timeout=SHORT))
    own.note(own.sum)
    own.told("given up")
    own.seen.append([*own.reconfigure(2, [2, 0]), own.sum()])


def one_stays_behind(own):
    """Process 0 is still in a call of three when the others go on as two."""
    own.reconfigure(1, [0, 1, 2])
    own.sum()
    own.told("ready")
    if own.index == 0:
        own.note(lambda: own.sum(1e6))
        own.told("over")
    else:
        time.sleep(0.2)
        own.seen.append([*own.reconfigure(2, [1, 2]), own.sum()])
        own.told("over")
        own.seen.append(own.sum())


def with_a_call_under_way(own):
    """A call that the others have not made yet is under way when a member goes on."""
    own.reconfigure(1, [0, 1])
    if own.index == 0:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        own.told("called")
        own.seen.append([*own.reconfigure(2, [0, 1]), own.sum()])
        own.note(work.wait)
    else:
        own.told("called")
        own.seen.append([*own.reconfigure(2, [0, 1]), own.sum()])


def wrong(own):
    """Calls that a group must refuse."""
    handles = own.told("handle", own.group.get_reconfigure_handle())
    own.note(own.sum)
    own.note(lambda: dist._reconfigure(1, handles[: own.index] + handles[own.index + 1 :]))
    own.note(lambda: dist._reconfigure(1, [*handles, handles[0]]))
    own.note(lambda: dist._reconfigure(1, [*handles, '{"id": "of another backend"}']))
    own.note(lambda: dist._reconfigure(1, handles, hints={"color": "blue"}))
    own.note(lambda: dist.new_group([0, 1]))
    own.reconfigure(3, range(own.count))
    own.note(lambda: dist._reconfigure(3, handles))
    own.seen.append(own.sum())


def without_an_order(own):
    """A set of handles: members agree on an order of their own."""
    handles = own.told("handle", own.group.get_reconfigure_handle())
    dist._reconfigure(1, set(handles)).wait()
    own.seen.append([dist.get_rank(), dist.get_world_size(), own.sum()])


def beside(own):
    """A group beside the default one, and a model of it that DDP trains before and after a change."""
    group = hk.reconfigurable_group(PATIENCE)
    assert group.supports_reconfigure
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    for uuid, members in enumerate(([0, 1, 2], [0, 2])):
        if own.index in members:
            options = ReconfigureOptions()
            options.uuid = uuid
            options.handles = own.told(f"beside {uuid}", group.get_reconfigure_handle(), members)
            group.reconfigure(options).wait()
            model(torch.full((1, 4), float(own.index))).sum().backward()
            works = [group.allreduce([each.grad]) for each in model.parameters()]
            for work in works:
                work.wait()
            own.seen.append(model.weight.grad[0, 0].item())
            model.zero_grad()
        own.told(f"done {uuid}")
    group.shutdown()


def dropped(own):
    """Groups to which nothing refers after some calls, as in a test that lets its group go out of scope."""
    gc.disable()
    for uuid in range(3):
        group = hk.reconfigurable_group(PATIENCE)
        options = ReconfigureOptions()
        options.uuid = uuid
        options.handles = own.told(f"dropped {uuid}", group.get_reconfigure_handle())
        group.reconfigure(options).wait()
        tensors = [torch.ones(1000), torch.ones(1000)]
        group.allreduce(tensors[:1]).wait()
        work = group.allreduce(tensors[1:])
        work.wait()
        node = weakref.ref(group.node)
        own.seen.append([each[0].item() for each in tensors])
        own.told(f"called {uuid}")
        del group, work
        deadline_s = time.monotonic() + PATIENCE.total_seconds()
        # Its memory is that of its node: a terabyte of addresses for every member.
        while node() is not None:
            assert time.monotonic() < deadline_s, [type(each) for each in gc.get_referrers(node())]
            time.sleep(0.01)


def at_hosts(own):
    """Two hosts: messages and calls between them, before and after they have changed places."""
    for uuid, members in enumerate(([0, 1], [1, 0])):
        rank, size = own.reconfigure(uuid, members)
        dist.all_to_all_single(swapped := torch.zeros(size), torch.full((size,), float(rank)))
        own.seen.append([rank, size, own.sum(), swapped.tolist(), list(own.group.node.job.hosts)])


def main():
    folder, name, index, count = sys.argv[1:]
    torch.set_num_threads(1)
    own = Process(folder, int(index), int(count))
    try:
        globals()[name](own)
    except Error as error:
        own.seen.append(f"{type(error).__name__}: {error}")
        raise
    finally:
        (own.folder / f"seen.{index}").write_text(json.dumps(own.seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
