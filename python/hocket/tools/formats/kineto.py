"""PyTorch profiler traces (Kineto JSON): collectives of NCCL with their process group, kernels and steps as Hocket's records.

A file is one rank's; a directory has those of a job. A collective's kernel runs from its own rank's arrival until all have arrived
and moved, so its duration on the last rank, the shortest, is the transfer. The excess on other ranks is waiting: `ready` to `start`
of the record. That requires every rank's file. Missing metadata is reported, never guessed.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hocket import typed
from hocket.artefacts.decoding import MALFORMED, bytes_from, why
from hocket.artefacts.trace import FIELDS, NO_PEER, Kind, LoadedProgram, Recording, RunInfo
from hocket.errors import ArtefactError

FILE_BYTES_MAX = 8 << 30
"""Limit of a decompressed file."""

DTYPE_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip
"""Sizes of element types by PyTorch's names."""

RANKS_MAX = 1 << 16
"""Limit of ranks of a job: a damaged number must not be taken for the job's size."""

TIME_NS_MAX = 1 << 61
"""Limit of a file's origin, and of times after it: their sum fits the record's 64 bits."""

NUMBER_MAX = (1 << 32) - 1
"""Limit of numbers of steps and streams in records."""

ELEMENTS_MAX = 1 << 56

IDENTITY_MAX = (1 << 63) - 1
"""Limit of numbers of threads, operators and sequences: some are addresses, and some count for as long as training lasts."""

EVENTS = re.compile(r',?\s*"traceEvents"\s*:\s*\[\s*')

SEPARATOR = re.compile(r"\s*,?\s*")
STEP = re.compile(r"ProfilerStep#(\d+)")
NCCL = re.compile(r"^nccl")
UPDATE = "Optimizer.step#"


@dataclass(frozen=True)
class Collective:
    """NCCL kernel; fields that its metadata lacks are None. Times in nanoseconds."""

    name: str
    start_ns: int
    end_ns: int
    stream: int
    step: int | None
    operator: int | None = None
    """External id of the operator that launched it."""
    elements: int | None = None
    dtype: str | None = None
    group: str | None = None
    ranks: tuple[int, ...] | None = None
    transfer_ns: int | None = None
    """Shortest duration on any rank; None: not every rank's is known."""

    @property
    def bytes(self) -> int | None:
        """Size of a rank's input."""
        size = DTYPE_BYTES.get(self.dtype or "")
        return None if size is None or self.elements is None else size * self.elements


@dataclass(frozen=True)
class Operator:
    """Call of PyTorch's on a thread of the CPU. `sequence`: the number that an operator and its backward function share."""

    name: str
    thread: int
    start_ns: int
    end_ns: int
    number: int | None
    """External id of the operator, which the kernels that it launches carry, too."""
    sequence: int | None


@dataclass
class RankProfile:
    path: Path
    rank: int | None
    world: int | None
    collectives: list[Collective] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    """Steps: number, start and end, nanoseconds."""
    kernels: list[tuple[int, int, int, int | None]] = field(default_factory=list)
    """Other kernels: start, end, stream, the external id of the operator that launched it."""
    operators: list[Operator] = field(default_factory=list)
    """Operators by start."""
    updates: list[tuple[int, int]] = field(default_factory=list)
    """Steps of optimizers: start and end, nanoseconds."""
    negative: int = 0
    """Number of events with a negative duration, which are taken to end where they begin."""
    damage: str = ""
    """Incomplete parts of the file; empty when it is complete."""


def read(path: Path) -> tuple[Recording, list[str]]:
    """Return the trace of a file or of all `*.json` and `*.json.gz` in a directory, and a sentence for each unknown fact.

    Raises ArtefactError: a file cannot be read or is no profiler trace, or two files are of the same rank.
    """
    ranks, notes = profiles(path)
    world = max([1, *(each.world or 0 for each in ranks), *(1 + (each.rank or 0) for each in ranks)])
    by_rank: dict[int, RankProfile] = {}
    for each in ranks:
        rank = each.rank if each.rank is not None else 0
        if rank in by_rank:
            raise ArtefactError(f"{each.path} and {by_rank[rank].path} are both of rank {rank}")
        by_rank[rank] = each
    programs: dict[tuple[Any, ...], int] = {}
    sizes: dict[int, int] = {}
    records = []
    for rank in range(world):
        records.append(
            _records(by_rank[rank], programs, sizes) if rank in by_rank else np.empty(0, list(FIELDS))
        )
    loaded = [LoadedProgram(program=0, label="kernels")]
    for key, number in programs.items():
        loaded.append(LoadedProgram(program=number, label=_label(key), bytes=sizes.get(number, 0)))
    hosts = tuple(f"rank {rank}" for rank in range(world))
    run = RunInfo(world=world, hosts=hosts, script=path.name, programs=tuple(loaded))
    return Recording(run, tuple(records)), notes


def profiles(path: Path) -> tuple[list[RankProfile], list[str]]:
    """Return each rank's collectives with their transfer times, and notes. Raises as `read`."""
    paths = sorted([*path.glob("*.json"), *path.glob("*.json.gz")]) if path.is_dir() else [path]
    if not paths:
        raise ArtefactError(f"{path} has no *.json or *.json.gz")
    ranks = [_profile(each) for each in paths]
    notes = [sentence for each in ranks for sentence in _unknown(each)]
    missing = max((each.world or 0 for each in ranks), default=0) - len(ranks)
    if missing > 0:
        notes.append(
            f"{path}: {missing} ranks' files are not there: a collective's duration is transfer and waiting in one, since only the "
            "shortest over all ranks is transfer"
        )
    else:
        notes += _split(ranks)
    return ranks, notes


def _profile(path: Path) -> RankProfile:
    tree, damage = _load(path)
    events = tree.get("traceEvents")
    if not isinstance(events, list):
        raise ArtefactError(f"{path} is no profiler trace: it has no `traceEvents`")
    about = tree.get("distributedInfo")
    about = about if isinstance(about, dict) else {}
    rank, world = _whole(about.get("rank"), RANKS_MAX - 1), _whole(about.get("world_size"), RANKS_MAX)
    profile = RankProfile(path, rank, world, damage=damage)
    base_ns = _whole(tree.get("baseTimeNanoseconds"), TIME_NS_MAX) or 0
    kernels = []
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        times = event.get("ts"), event.get("dur")
        if not all(isinstance(each, int | float) and abs(each) * 1000 <= TIME_NS_MAX / 2 for each in times):
            continue
        start_ns = base_ns + round(times[0] * 1000)  # type: ignore[operator]  # checked above
        duration_ns = round(times[1] * 1000)  # type: ignore[operator]
        profile.negative += duration_ns < 0
        end_ns = start_ns + max(0, duration_ns)
        name, kind = str(event.get("name", "")), event.get("cat")
        step = STEP.match(name)
        if step and kind == "user_annotation" and int(step[1]) <= NUMBER_MAX:
            profile.steps.append((int(step[1]), start_ns, end_ns))
        elif kind == "user_annotation" and name.startswith(UPDATE):
            profile.updates.append((start_ns, end_ns))
        elif kind == "kernel":
            kernels.append((name, start_ns, end_ns, _args(event)))
        elif kind == "cpu_op":
            profile.operators.append(_operator(name, start_ns, end_ns, event))
    profile.steps.sort(key=lambda step: step[1])
    profile.operators.sort(key=lambda operator: operator.start_ns)
    for name, start_ns, end_ns, args in kernels:
        stream = _whole(args.get("stream"), NUMBER_MAX) or 0
        if NCCL.match(name):
            profile.collectives.append(_collective(name, (start_ns, end_ns), stream, args, profile.steps))
        else:
            launched_by = _whole(args.get("External id"), IDENTITY_MAX)
            profile.kernels.append((start_ns, end_ns, stream, launched_by))
    profile.collectives.sort(key=lambda each: each.start_ns)
    return profile


def _args(event: dict[str, Any]) -> dict[str, Any]:
    given = event.get("args")
    return given if isinstance(given, dict) else {}


def _operator(name: str, start_ns: int, end_ns: int, event: dict[str, Any]) -> Operator:
    args = _args(event)
    return Operator(
        name=name,
        thread=_whole(event.get("tid"), IDENTITY_MAX) or 0,
        start_ns=start_ns,
        end_ns=end_ns,
        number=_whole(args.get("External id"), IDENTITY_MAX),
        sequence=_whole(args.get("Sequence number"), IDENTITY_MAX),
    )


def _load(path: Path) -> tuple[dict[str, Any], str]:
    """Return the object, and its incomplete parts: a truncated or damaged file has all events before the damage."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            data = bytes_from(file, FILE_BYTES_MAX)
        tree = typed.of_json(data)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ArtefactError(f"{path} cannot be read: {reason}") from None
    except MALFORMED as error:
        return _before_damage(path, data, why(error))
    if not isinstance(tree, dict):
        raise ArtefactError(f"{path} is no profiler trace: it is no JSON object")
    return tree, ""


def _before_damage(path: Path, data: bytes, error: str) -> tuple[dict[str, Any], str]:
    """Return the members before the events, and all complete events before the first invalid one."""
    text = data.decode(errors="replace")
    opening = EVENTS.search(text)
    try:
        tree = json.loads(text[: opening.start()] + "}") if opening else None
    except (ValueError, RecursionError):
        tree = None
    if opening is None or not isinstance(tree, dict):
        raise ArtefactError(f"{path} is no JSON, or damaged: {error}")
    decoder, at, events = json.JSONDecoder(), opening.end(), []
    while True:
        try:
            event, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        events.append(event)
        at = SEPARATOR.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
    if not events:
        raise ArtefactError(f"{path} is no JSON, or damaged: {error}")
    damage = (
        f"{path}: is cut off or damaged after {len(events)} events, which are read; what stands behind them, such as the clock's "
        f"origin, is not: {error}"
    )
    return {**tree, "traceEvents": events}, damage


def _collective(
    name: str, span: tuple[int, int], stream: int, args: dict[str, Any], steps: list[tuple[int, int, int]]
) -> Collective:
    ranks = re.findall(r"\d+", str(args.get("Process Group Ranks", "")))
    group, dtype = args.get("Process Group Name"), args.get("dtype")
    what = args.get("Collective name")
    inside = [number for number, start, end in steps if start <= span[0] < end]
    return Collective(
        name=what if isinstance(what, str) else name.partition("(")[0],
        start_ns=span[0],
        end_ns=span[1],
        stream=stream,
        step=inside[0] if inside else None,
        operator=_whole(args.get("External id"), IDENTITY_MAX),
        elements=_whole(args.get("In msg nelems"), ELEMENTS_MAX),
        dtype=dtype if isinstance(dtype, str) else None,
        group=group if isinstance(group, str) else None,
        ranks=tuple(map(int, ranks)) or None,
    )


def _unknown(profile: RankProfile) -> list[str]:
    """Return facts that the file lacks."""
    path, notes = profile.path, [profile.damage] if profile.damage else []
    if profile.negative:
        notes.append(
            f"{path}: {profile.negative} events last less than nothing: they are taken to end where they begin"
        )
    if profile.rank is None or profile.world is None:
        notes.append(
            f"{path}: no `distributedInfo`: its rank and the world's size are not known, rank 0 is shown"
        )
    count = len(profile.collectives)
    if not count:
        notes.append(f"{path}: no kernel's name begins with `nccl`: no communication on a GPU is in it")
    for what, known in (
        ("size", [each.bytes is not None for each in profile.collectives]),
        ("process group", [None not in (each.group, each.ranks) for each in profile.collectives]),
        ("step", [each.step is not None for each in profile.collectives]),
    ):
        bare = known.count(False)
        if bare:
            notes.append(f"{path}: {bare} of {count} collectives carry no {what}")
    return notes


def _split(ranks: list[RankProfile]) -> list[str]:
    """Give each collective its transfer time: the n-th of a group on one rank is the n-th on all."""
    durations: dict[tuple[Any, ...], list[tuple[int, int, int]]] = defaultdict(list)
    for index, profile in enumerate(ranks):
        turns: dict[Any, int] = defaultdict(int)
        for position, each in enumerate(profile.collectives):
            key = (each.group, each.ranks)
            durations[*key, turns[key]].append((each.end_ns - each.start_ns, index, position))
            turns[key] += 1
    unmatched = 0
    for (_, members, _), found in durations.items():
        if (
            members is None
            or len(found) != len(members)
            or len({ranks[i].collectives[p].name for _, i, p in found}) > 1
        ):
            unmatched += len(found)
            continue
        shortest = min(found)[0]
        for _, index, position in found:
            ranks[index].collectives[position] = replace(
                ranks[index].collectives[position], transfer_ns=shortest
            )
    return [
        f"{unmatched} collectives were not found on every rank of their group: their waiting is not told apart"
    ] * bool(unmatched)


def _records(profile: RankProfile, programs: dict[tuple[Any, ...], int], sizes: dict[int, int]) -> Any:
    """Return collectives, kernels and steps by end; a program is a collective of that size at that position in the step."""
    rows: list[tuple[int, ...]] = []
    turns: dict[tuple[Any, ...], int] = defaultdict(int)
    for each in profile.collectives:
        kind = (each.name, each.elements, each.dtype, each.group)
        turn = turns[each.step, kind]
        turns[each.step, kind] += 1
        program = programs.setdefault((*kind, turn), 1 + len(programs))
        sizes[program] = each.bytes or 0
        start_ns = each.start_ns if each.transfer_ns is None else each.end_ns - each.transfer_ns
        head = (each.start_ns, start_ns, each.end_ns, each.bytes or 0, program, each.step or 0)
        rows.append((*head, 0, NO_PEER, Kind.INSTANCE, 0, each.stream, 0))
    for start, end, stream, _ in profile.kernels:
        rows.append((start, start, end, 0, 0, 0, 0, NO_PEER, Kind.APPLY, 0, stream, 0))
    for number, start, end in profile.steps:
        rows.append((start, start, end, 0, 0, number, 0, NO_PEER, Kind.STEP, 0, 0, 0))
    return np.array(sorted(rows, key=lambda row: row[2]), list(FIELDS))


def _label(key: tuple[Any, ...]) -> str:
    name, elements, dtype, group, turn = key
    size = "size unknown" if elements is None else f"{elements} {dtype or '?'}"
    return f"{name} {size}, group {group if group is not None else 'unknown'}" + (
        f", {turn + 1}" if turn else ""
    )


def _whole(value: object, most: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None
