"""Search for the order of hosts in which a collective costs least, and with `auto` also for the algorithm and the groups.

The cost of an order comes from `crates/order`: sums and maxima, over the algorithm's pairs, of latency and of bytes over bandwidth,
or the time of the busiest link that pairs share. If these links are unknown, that is reported.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from hocket import _native
from hocket.artefacts.algorithms import BY_NAME, ORDERED
from hocket.artefacts.algorithms import Algorithm as Listed
from hocket.artefacts.chunks import CHUNK_BYTES
from hocket.errors import UsageError
from hocket.planning.ordering.matrix import Matrix, Numbers

Algorithm = str
"""One of `ALGORITHMS`."""

AUTO = "auto"
"""The best of all algorithms."""

ALGORITHMS: tuple[str, ...] = (*ORDERED, AUTO)

GAP_RATIO = 1.5
"""Factor by which links between groups of hosts are slower than links within: more than jitter."""

Progress = Callable[[int, int, str], None]
"""Called a few times a second with steps done, steps in all, and the subject of the search."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a search.

    `size_bytes` is each rank's buffer; 0: latency alone. `groups` are the sizes of `two_level`; empty: searched.
    `far_first`: the rounds of halving-doubling and BCube begin between ranks far apart, as in Hocket; Gloo's and MPI's
    begin with neighbours. None: like the likely library, MPI or Gloo for halving-doubling, Hocket for BCube.
    The same seed, restarts and effort give the same order, unless `time_limit_s` ends the search.
    """

    algorithm: Algorithm = "ring"
    size_bytes: float = 0.0
    base: int = 4
    groups: tuple[int, ...] = ()
    far_first: bool | None = None
    seed: int = 0
    restarts: int = 4
    effort: float = 1.0
    time_limit_s: float | None = None


def own(algorithm: Listed, size_bytes: float, *, effort: float = 1.0, restarts: int = 4) -> Request:
    """Request for Hocket's own all-reduce by an algorithm with its numbers."""
    takes = BY_NAME[algorithm.name].takes
    request = Request(
        algorithm=algorithm.name,
        size_bytes=size_bytes,
        groups=algorithm.numbers if takes == "sizes" else (),
        far_first=True,
        effort=effort,
        restarts=restarts,
    )
    return msgspec.structs.replace(request, base=algorithm.numbers[0]) if takes == "base" else request


class Considered(msgspec.Struct, frozen=True, kw_only=True):
    """One algorithm with its best order and that order's cost."""

    algorithm: str
    groups: tuple[int, ...]
    cost_s: float
    order: tuple[int, ...]


class Ordering(msgspec.Struct, frozen=True, kw_only=True):
    """An order and its properties.

    `order[place]` is the index, in the given order, of the host at this place; `hosts` are their names, `slots` their
    ranks. `cost_s` and `given_s` are the collective's time in this order and in the given one, `bound_s` is a lower
    bound for any order. `proven`: no order is better; `complete`: no time limit ended the search.
    """

    algorithm: str
    groups: tuple[int, ...]
    size_bytes: float
    order: tuple[int, ...]
    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    cost_s: float
    given_s: float
    bound_s: float
    proven: bool
    complete: bool
    seed: int
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    considered: tuple[Considered, ...] = ()

    @property
    def gap(self) -> float:
        """Upper bound of the relative excess of the cost over the best order's."""
        return self.cost_s / self.bound_s - 1 if self.bound_s > 0 else math.inf


def solve(matrix: Matrix, request: Request, progress: Progress | None = None) -> Ordering:
    """The cheapest order found. It never costs more than the given one. Ctrl-C stops the search at once.

    Args:
        matrix: the network between hosts.
        request: the collective, its size and how long to search.
        progress: called while the search runs.

    Raises:
        UsageError: groups or a base do not fit.

    >>> near, far = 1e-5, 1e-4
    >>> latency_s = np.array([[0, far, near, far], [far, 0, far, near], [near, far, 0, far], [far, near, far, 0]])
    >>> solve(Matrix(hosts=("a", "b", "c", "d"), latency_s=latency_s, slots=(1,) * 4), Request()).hosts
    ('c', 'a', 'b', 'd')
    """
    _check(request)
    found = [
        _solve_one(matrix, request, algorithm, groups, progress)
        for algorithm, groups in _candidates(matrix, request)
    ]
    unknown = _unknown(matrix) if request.size_bytes else ()
    found = [msgspec.structs.replace(each, notes=(*each.notes, *unknown)) for each in found]
    best = min(found, key=lambda each: each.cost_s)
    if len(found) == 1:
        return best
    considered = [
        Considered(algorithm=each.algorithm, groups=each.groups, cost_s=each.cost_s, order=each.order)
        for each in sorted(found, key=lambda each: each.cost_s)
    ]
    return msgspec.structs.replace(best, considered=tuple(considered))


def _unknown(matrix: Matrix) -> tuple[str, ...]:
    """The missing data for an order by bytes."""
    if matrix.s_per_byte is None:
        return ("the bytes of a buffer do not count: bandwidth is not known",)
    if matrix.network is None:
        return (
            "links that several pairs share do not count: these matrices do not show any (a cluster file of `hocket probe` does)",
        )
    return ()


def solve_sizes(
    matrix: Matrix, request: Request, sizes_bytes: Sequence[float], progress: Progress | None = None
) -> tuple[Ordering, ...]:
    """An order for each size of a message, smallest first; with `auto` also the algorithm for each.

    Raises UsageError like `solve`, and when bytes cannot count because bandwidth is unknown.
    """
    if matrix.s_per_byte is None:
        raise UsageError("order: the network's bandwidth is not known, so that all sizes are alike")
    return tuple(
        solve(matrix, msgspec.structs.replace(request, size_bytes=size), progress)
        for size in sorted(set(sizes_bytes))
    )


def cost_s(matrix: Matrix, request: Request, order: Sequence[int]) -> float:
    """Seconds of the collective in an order of the matrix's hosts; not for `auto`."""
    return costs_s(matrix, request, [order])[0]


def costs_s(matrix: Matrix, request: Request, orders: Sequence[Sequence[int]]) -> list[float]:
    """Seconds of the collective in each of several orders."""
    problem = _problem(matrix, request, request.algorithm, request.groups)
    return [problem.cost_s(order) for order in orders]


def find_groups(matrix: Matrix, size_bytes: float = 0.0) -> tuple[tuple[int, ...], ...]:
    """Groups of near hosts.

    These are hosts behind one switch, if known; otherwise the groups come from the widest gap between the links that
    join hosts. Without a gap there is one group.


    >>> find_groups(Matrix(hosts=("a", "b", "c"), latency_s=np.array([[0, 9, 1], [9, 0, 9], [1, 9, 0]]) * 1e-4))
    ((0, 2), (1,))
    """
    if len(matrix.groups) > 1:
        return matrix.groups
    lengths = _message_s(matrix, size_bytes)
    joins = _spanning_tree(lengths)
    ratios = [after[0] / before[0] if before[0] > 0 else math.inf for before, after in pairwise(joins)]
    if not ratios or max(ratios) < GAP_RATIO:
        return (tuple(range(len(lengths))),)
    group = list(range(len(lengths)))
    for _, a, b in joins[: int(np.argmax(ratios)) + 1]:
        old, new = group[b], group[a]
        group = [new if each == old else each for each in group]
    members = {
        name: tuple(host for host, own in enumerate(group) if own == name) for name in dict.fromkeys(group)
    }
    return tuple(members.values())


def _message_s(matrix: Matrix, size_bytes: float) -> Numbers:
    return matrix.latency_s + (size_bytes * matrix.s_per_byte if matrix.s_per_byte is not None else 0.0)


def _spanning_tree(
    lengths: Numbers,
) -> list[tuple[float, int, int]]:
    """Edges of the minimum spanning tree (Prim 1957), shortest first."""
    nearest, parents = lengths[0].copy(), np.zeros(len(lengths), dtype=int)
    left = np.arange(1, len(lengths))
    edges = []
    while len(left):
        at = int(left[np.argmin(nearest[left])])
        edges.append((float(nearest[at]), int(parents[at]), at))
        left = left[left != at]
        closer = lengths[at] < nearest
        parents[closer], nearest[closer] = at, lengths[at][closer]
    return sorted(edges)


def _check(request: Request) -> None:
    if not (request.size_bytes >= 0 and math.isfinite(request.size_bytes)):
        raise UsageError(f"order: a buffer of {request.size_bytes} bytes: it must be 0 or more")
    if request.algorithm not in ALGORITHMS:
        raise UsageError(f"order: there is no algorithm `{request.algorithm}`\nhint: {', '.join(ALGORITHMS)}")
    if request.groups and request.algorithm != "two_level":
        raise UsageError(f"order: groups are for two_level, not for {request.algorithm}")
    if request.restarts < 1 or not 0 < request.effort < math.inf:
        raise UsageError("order: a search has at least one run, and an effort above 0")


def _candidates(matrix: Matrix, request: Request) -> list[tuple[str, tuple[int, ...]]]:
    """Algorithms with their groups; several for `auto`."""
    if request.algorithm not in (AUTO, "two_level") or request.groups:
        return [(request.algorithm, request.groups)]
    two_level = [("two_level", sizes) for sizes in _groupings(matrix, request.size_bytes)]
    if request.algorithm == "two_level":
        return two_level
    plain: list[tuple[str, tuple[int, ...]]] = [(name, ()) for name in ORDERED if name != "two_level"]
    return plain + two_level


def _groupings(matrix: Matrix, size_bytes: float) -> list[tuple[int, ...]]:
    """Sizes of two-level groups worth trying: groups of near hosts, and equal sizes around the root of the number of hosts."""
    count = len(matrix.hosts)
    found = [tuple(sorted((len(group) for group in find_groups(matrix, size_bytes)), reverse=True))]
    near_root = sorted(
        (size for size in range(2, count) if count % size == 0), key=lambda size: abs(size - math.sqrt(count))
    )
    found += [(size,) * (count // size) for size in near_root[:2]]
    return list(dict.fromkeys(found))


def _solve_one(
    matrix: Matrix, request: Request, algorithm: str, groups: tuple[int, ...], progress: Progress | None
) -> Ordering:
    problem = _problem(matrix, request, algorithm, groups)
    given = list(range(len(matrix.hosts)))
    start = given
    if algorithm == "two_level":
        near = sorted(find_groups(matrix, request.size_bytes), key=len, reverse=True)
        start = [host for group in near for host in group]
    order, cost, _, bound, proven, complete = _watched(problem, start, request, algorithm, progress)
    given_s = problem.cost_s(given)
    if cost >= given_s:
        order, cost = given, given_s
    return Ordering(
        algorithm=algorithm,
        groups=groups,
        size_bytes=request.size_bytes,
        order=tuple(order),
        hosts=tuple(matrix.hosts[host] for host in order),
        slots=tuple(matrix.slots[host] for host in order) if matrix.slots else (1,) * len(order),
        cost_s=cost,
        given_s=given_s,
        bound_s=bound,
        proven=proven,
        complete=complete,
        seed=request.seed,
        left_out=matrix.left_out,
        notes=matrix.notes,
    )


def _problem(
    matrix: Matrix, request: Request, algorithm: str, groups: tuple[int, ...]
) -> _native.OrderProblem:
    far_first = request.far_first
    numbers: dict[str, tuple[int, ...]] = {"nothing": (), "sizes": groups, "base": (request.base,)}
    return _native.OrderProblem(
        hosts=len(matrix.hosts),
        latency_s=_buffer(matrix.latency_s),
        s_per_byte=None if matrix.s_per_byte is None else _buffer(matrix.s_per_byte),
        network=None if matrix.network is None else matrix.network.native,
        algorithm=algorithm,
        numbers=numbers[BY_NAME[algorithm].takes],
        size_bytes=request.size_bytes,
        chunk_bytes=CHUNK_BYTES,
        far_first=algorithm == "bcube" if far_first is None else far_first,
    )


def _buffer(matrix: Numbers) -> memoryview:
    return np.ascontiguousarray(matrix, dtype=np.float64).ravel().data


def _watched(
    problem: _native.OrderProblem,
    start: list[int],
    request: Request,
    algorithm: str,
    progress: Progress | None,
) -> tuple[list[int], float, float, float, bool, bool]:
    """Run the search in its own thread, so that Ctrl-C and progress are served in the meantime."""
    result: list[tuple[list[int], float, float, float, bool, bool]] = []
    failure: list[BaseException] = []

    def search() -> None:
        try:
            result.append(
                problem.solve(start, request.seed, request.restarts, request.effort, request.time_limit_s)
            )
        except BaseException as error:  # raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=search, name="hocket-order", daemon=True)
    thread.start()
    total = problem.amount(request.restarts, request.effort)
    try:
        while thread.is_alive():
            thread.join(0.1)
            if progress is not None:
                progress(min(problem.done(), total), total, algorithm)
    except BaseException:
        problem.stop()
        thread.join()
        raise
    if failure:
        raise failure[0]
    return result[0]
