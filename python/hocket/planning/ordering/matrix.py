"""Matrices of hosts: latency and bandwidth of every pair, checked and symmetric, and the links that pairs share.

Every violated rule has its own message with row and column. Numbers that can be used in spite of a flaw (the two
directions differ) are corrected, and reported in `notes`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hocket.artefacts.decoding import clipped, text_of, unreadable
from hocket.artefacts.names import check_hosts
from hocket.artefacts.network import Network
from hocket.errors import ArtefactError, UsageError

Numbers = NDArray[np.float64]

UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Units of latency."""

BITS = 8

SHORTEST_S = 1e-9
"""Replaces a latency of zero, from rounding: a matrix of zeros was not measured."""

MISSING = ("", "-", "nan", "none", "null", "inf", "infinity")
"""Cells for a pair that was not measured, or whose hosts cannot reach each other."""

ASYMMETRY_SAID = 0.01
"""Relative difference of the two directions above which it is reported."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Hosts in the given order, and symmetric matrices over them; the diagonals are 0.

    `latency_s` is one way. `s_per_byte` is the inverse of the bandwidth of a pair alone; None if unknown. `network` has the links
    that pairs share; None if unknown. `groups` are the hosts behind each switch; empty if unknown. `slots` is the number of ranks
    of each host, `left_out` are unreachable hosts, `notes` lists corrections.
    """

    hosts: tuple[str, ...]
    latency_s: Numbers
    s_per_byte: Numbers | None = None
    network: Network | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    slots: tuple[int, ...] = ()
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def read_csv(
    latency: Path,
    *,
    bandwidth: Path | None = None,
    unit: str = "s",
    hosts: Sequence[str] | None = None,
    skip_unreachable: bool = False,
) -> Matrix:
    """Matrices from CSV files, with or without a row and a column of names.

    Args:
        latency: one way, or anything proportional to it.
        bandwidth: bit/s of one flow.
        unit: of latency: `s`, `ms` or `us`.
        hosts: the names that the matrices must have, in this order; for matrices without names, the names of their
            rows.
        skip_unreachable: leave out hosts without any measured pair, instead of raising an error.

    Raises:
        ArtefactError: a file cannot be read or is no matrix of hosts; the message has row and column.
        UsageError: the matrices do not match each other or `hosts`.
    """
    names, numbers = _table(latency)
    names = _named(names, hosts, len(numbers), latency)
    rates = None
    if bandwidth is not None:
        rate_names, rates = _table(bandwidth)
        if len(rates) != len(numbers) or (rate_names is not None and tuple(rate_names) != tuple(names)):
            raise UsageError(f"{bandwidth}: its hosts are not those of {latency}")
    return build(
        names,
        numbers * UNITS_S[unit],
        rates,
        what=(str(latency), str(bandwidth)),
        skip_unreachable=skip_unreachable,
    )


def build(
    hosts: Sequence[str],
    latency_s: Numbers | None,
    bit_per_s: Numbers | None,
    *,
    what: tuple[str, str] = ("latency", "bandwidth"),
    slots: Sequence[int] | None = None,
    skip_unreachable: bool = False,
) -> Matrix:
    """Build a checked matrix; entries that are not finite count as missing. `what` names latency and bandwidth in messages."""
    names = tuple(hosts)
    check_hosts(names, what[0])
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ArtefactError(
                f"{what[0]}: host `{name}` is there twice, rows {names.index(name) + 1} and {index + 1}"
            )
    notes: list[str] = []
    kept: NDArray[np.bool_] = np.ones(len(names), dtype=np.bool_)
    measured = [
        (title, matrix)
        for title, matrix in zip(what, (latency_s, bit_per_s), strict=True)
        if matrix is not None
    ]
    for _, matrix in measured if len(names) > 1 else ():
        kept = kept & _reached(matrix)
    left_out = tuple(name for name, keep in zip(names, kept, strict=True) if not keep)
    if left_out:
        if not skip_unreachable:
            raise ArtefactError(
                f"{what[0]}: nobody reaches {', '.join(left_out)}\n"
                "hint: with --skip-unreachable the other hosts are ordered without"
            )
        notes.append(f"left out, since nobody reaches them: {', '.join(left_out)}")
    names = tuple(name for name, keep in zip(names, kept, strict=True) if keep)
    if len(names) < 2:
        raise UsageError(f"{what[0]}: {len(names)} host{'s' * (len(names) != 1)}: there is nothing to order")
    symmetric = {}
    for title, matrix in measured:
        part = matrix[np.ix_(kept, kept)]
        _check(part, names, title)
        cost = part if title == what[0] else BITS / np.where(np.eye(len(names), dtype=bool), np.inf, part)
        symmetric[title] = _symmetric(cost, names, title, notes)
    zeros = np.zeros((len(names), len(names)))
    return Matrix(
        hosts=names,
        latency_s=symmetric.get(what[0], zeros),
        s_per_byte=symmetric.get(what[1]),
        slots=tuple(count for count, keep in zip(slots, kept, strict=True) if keep)
        if slots
        else (1,) * len(names),
        left_out=left_out,
        notes=tuple(notes),
    )


def _reached(matrix: Numbers) -> NDArray[np.bool_]:
    """Hosts with at least one measured pair with another host, in either direction."""
    others = np.isfinite(matrix) & ~np.eye(len(matrix), dtype=bool)
    return np.logical_or(others.any(axis=0), others.any(axis=1))


def _check(matrix: Numbers, names: Sequence[str], title: str) -> None:
    for row, column in np.argwhere(~(np.isfinite(matrix) & (matrix > 0))):
        if row == column:
            continue
        entry = matrix[row, column]
        entry_text = "missing" if not np.isfinite(entry) else f"{entry:g}: it must be above 0"
        raise ArtefactError(
            f"{title}: row {row + 1}, column {column + 1} ({names[row]} to {names[column]}) is {entry_text}\n"
            "hint: measure this pair again, or leave one of its hosts out"
        )


def _symmetric(matrix: Numbers, names: Sequence[str], title: str, notes: list[str]) -> Numbers:
    """The larger of both directions: a collective waits for the slower one."""
    larger = np.maximum(matrix, matrix.T)
    np.fill_diagonal(larger, 0.0)
    smaller = np.minimum(matrix, matrix.T)
    np.fill_diagonal(smaller, 0.0)
    apart = larger > smaller * (1 + ASYMMETRY_SAID)
    if apart.any():
        most = int(np.argmax(larger / np.where(smaller > 0, smaller, np.inf)))
        row, column = divmod(most, len(names))
        part = larger[row, column] / smaller[row, column]
        count = int(apart.sum()) // 2
        notes.append(
            f"{title}: {count} pair{'s differ' if count > 1 else ' differs'} by direction, most {names[row]} and "
            f"{names[column]} ({part:.2f} times); the slower one counts"
        )
    return np.ascontiguousarray(larger)


def _named(names: list[str] | None, hosts: Sequence[str] | None, count: int, path: Path) -> list[str]:
    if hosts is None:
        return names or [f"host{index}" for index in range(count)]
    if len(hosts) != count:
        raise UsageError(f"{path}: {count} rows, but the host list has {len(hosts)} hosts")
    if names is not None and list(hosts) != names:
        at = next(index for index, (a, b) in enumerate(zip(hosts, names, strict=True)) if a != b)
        raise UsageError(
            f"{path}: row {at + 1} is host `{names[at]}`, but the host list has `{hosts[at]}` there"
        )
    return list(hosts)


def _table(path: Path) -> tuple[list[str] | None, Numbers]:
    """Names, if the file has any, and a square of numbers; missing numbers are NaN."""
    try:
        text = text_of(path)
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {unreadable(error)}") from None
    lines = csv.reader(io.StringIO(text))
    try:
        rows = [[cell.strip() for cell in row] for row in lines if any(map(str.strip, row))]
    except csv.Error as error:
        raise ArtefactError(f"{path}, line {lines.line_num}: it is no CSV: {error}") from None
    if not rows:
        raise ArtefactError(f"{path} has no rows")
    names = None
    if _is_names(rows[0]) or (len(rows) > 1 and len(rows) == len(rows[0]) + 1):
        first = rows.pop(0)
        named_rows = len(first) == len(rows) + 1
        names = first[1:] if named_rows else first
        if named_rows:
            for index, row in enumerate(rows):
                if row[0] != names[index]:
                    raise ArtefactError(
                        f"{path}: row {index + 1} is named `{clipped(row[0])}`, column {index + 1} "
                        f"`{clipped(names[index])}`: they must agree"
                    )
            rows = [row[1:] for row in rows]
        if len(names) != len(rows):
            raise ArtefactError(
                f"{path} has {len(names)} columns, of which the first row is not numbers, and {len(rows)} more rows\n"
                "hint: as many rows as columns, and names in all of the first row or in none of it"
            )
    for index, row in enumerate(rows):
        if len(row) != len(rows):
            raise ArtefactError(
                f"{path}: row {index + 1} has {len(row)} numbers, but there are {len(rows)} rows"
            )
    numbers = np.array(
        [[_number(path, i, j, cell) for j, cell in enumerate(row)] for i, row in enumerate(rows)]
    )
    return names, numbers


def _is_names(row: Sequence[str]) -> bool:
    """Return whether a first row has column names: a row of numbers that begins with a number has one wrong number instead."""
    numbers = [_is_number(cell) for cell in row[1:]]
    return not all(numbers) and not (any(numbers) and bool(row[0]) and _is_number(row[0]))


def _is_number(cell: str) -> bool:
    if cell.lower() in MISSING:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(path: Path, row: int, column: int, cell: str) -> float:
    if cell.lower() in MISSING:
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        raise ArtefactError(
            f"{path}: row {row + 1}, column {column + 1}: `{clipped(cell)}` is not a number"
        ) from None
