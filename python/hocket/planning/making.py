"""Making of buckets for a builder: variables and a route, checked as they are given, so that a mistake has its line."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from hocket import typed
from hocket.artefacts.chunks import SHARED_CHUNK_BYTES, chunk_bytes
from hocket.artefacts.needs import bucket_needs, declared, unkept
from hocket.artefacts.plan import (
    AllReduce,
    Bucket,
    Codec,
    Gathered,
    LinksRule,
    OrderRule,
    Owned,
    Plan,
    Route,
    Rule,
    Served,
    Traced,
)
from hocket.artefacts.plan_check import bucket_findings
from hocket.artefacts.profile import Gradient
from hocket.errors import UsageError
from hocket.planning.buckets import Piece, bucket_of, plan_of, with_codec
from hocket.planning.question import Question
from hocket.planning.routes import name, owned_parts
from hocket.planning.traced import policy_of
from hocket.planning.traffic import pairs
from hocket.user_classes import HOCKET

Variable = Gradient
"""Variable of the model: `name`, `shape`, `dtype`, `elements`, `rows`, `bytes`, `sparse`, `touched` (rows of a step, if measured),
`ready_s` and `needed_s` (seconds from the begin of forward)."""

Part = Variable | str | Piece
"""Variable, its name, or a part of it: (variable, first element, one after the last)."""

Line = tuple[str, int]
"""File and line."""

T = TypeVar("T")

FIT_ALL = ("ring", "direct", "in_place")
"""All-reduces of any number of ranks. Whether others fit is found by counting what they send."""

NAMED_MAX = 3
"""Limit of variables that a message names."""


class Maker:
    """Buckets of one job, and the lines that made them."""

    def __init__(self, question: Question) -> None:
        """Begin without buckets."""
        self._question = question
        self._world = len(question.graph.hosts)
        self._trained = tuple(range(question.workers))
        self._templates: dict[object, Bucket] = {}
        """Checked buckets without parts, by all that a caller says of a route."""
        self._lines: dict[int, tuple[Bucket, Line]] = {}
        """Buckets, and the lines that made them, by identity."""

    def made(
        self,
        variables: Part | Iterable[Part],
        route: Route,
        *,
        order: Sequence[int] | None,
        codec: Codec,
        codec_links: Sequence[tuple[int, int]] | None,
        priority: int,
        chunk_bytes: int | None,
        cards: Sequence[int] | None,
    ) -> Bucket:
        """Make a bucket; see `Job.bucket`."""
        pieces = self._pieces(variables)
        where = _named(pieces)
        key = route, order, codec, codec_links, chunk_bytes, cards
        template = self._templates.get(key) if _is_hashable(key) else None
        if template is None:
            bare = self._template(_route(route, where), order, chunk_bytes, cards)
            template = self._coded(self._checked(pieces, bare, where), codec, codec_links, pieces, where)
            if not isinstance(route, Gathered) and _is_hashable(key):
                self._templates[key] = template
        if not isinstance(priority, int) or priority < 0:
            raise UsageError(f"{where}: priority {priority!r}: a whole number from 0 on")
        made = bucket_of(pieces, template, priority)
        self._lines[id(made)] = made, _line()
        return made

    def line(self, bucket: Bucket) -> Line | None:
        """Return the file and line outside Hocket that made a bucket; None: `bucket` has not made it."""
        held = self._lines.get(id(bucket))
        return None if held is None else held[1]

    def plan(self, buckets: Sequence[Bucket], label: str) -> Plan:
        """Return a plan of these buckets for the job's ranks, with the strictest promise that they keep."""
        made = plan_of(buckets, self._world, label=label)
        return msgspec.structs.replace(made, workers=tuple(range(self._question.workers)))

    def _template(
        self,
        route: Route,
        order: Sequence[int] | None,
        size: int | None,
        cards: Sequence[int] | None,
    ) -> Bucket:
        shared = route == AllReduce(algorithm="in_place")
        usual = SHARED_CHUNK_BYTES if shared else chunk_bytes(self._question.graph.slowest_bit_per_s)
        single = isinstance(route, Owned) and len(route.owners) == 1
        return Bucket(
            parts=(),
            elements=0,
            dtype="",
            route=route,
            order=self._order(route) if order is None else tuple(order),
            priority=0,
            cards=None if cards is None else tuple(cards),
            chunk_bytes=usual if size is None else size,
            rule=Rule(order=self._order_rule(order), owners="one" if single else None),
        )

    def _order(self, route: Route) -> tuple[int, ...]:
        """Ranks of a route: the workers, and helpers that own or serve."""
        others: Iterable[int] = ()
        if isinstance(route, Owned):
            others = (owner.rank for owner in route.owners)
        elif isinstance(route, Served):
            others = route.servers
        return (
            *self._trained,
            *sorted(rank for rank in set(others) if self._question.workers <= rank < self._world),
        )

    def _order_rule(self, order: Sequence[int] | None) -> OrderRule | None:
        if order is None:
            return "given"
        return next((each.rule for each in self._question.orders if each.ranks == tuple(order)), None)

    def _checked(self, pieces: Sequence[Piece], template: Bucket, where: str) -> Bucket:
        """Return a template, read anew; UsageError for the first fault of a bucket of these pieces."""
        made = _read(bucket_of(pieces, template, 0), Bucket, where)
        for found in bucket_findings(where, made, self.plan([made], "")):
            raise UsageError(
                f"{found.message}\nhint: the job has ranks 0 to {self._world - 1}; docs/strategies.md has the routes"
            )
        self._check_runs(made, where)
        for why in unkept(self._question.promise, bucket_needs([made])):
            raise UsageError(
                f"{why.replace('bucket 0', where, 1)}\n"
                f"hint: `--promise {declared(bucket_needs([made]))}`, or another route"
            )
        return made

    def _check_runs(self, bucket: Bucket, where: str) -> None:
        """Raise UsageError for a route that its ranks cannot run, or of which nobody knows what it sends."""
        workers = range(self._question.workers)
        try:
            if isinstance(bucket.route, AllReduce):
                if bucket.route.algorithm not in FIT_ALL:
                    pairs(bucket, workers)
            elif isinstance(bucket.route, Traced):
                policy_of(bucket.route)
                if self._question.workers < self._world:
                    raise UsageError(
                        "a policy beside helpers, which have no gradients\nhint: an all-reduce, or owners"
                    )
            elif not isinstance(bucket.route, Gathered):
                owned_parts(bucket, workers)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None

    def _coded(
        self,
        template: Bucket,
        codec: Codec,
        links: Sequence[tuple[int, int]] | None,
        pieces: Sequence[Piece],
        where: str,
    ) -> Bucket:
        """Return a template with a codec; without it if no link would use it, since all ranks are on one host."""
        if codec == "none":
            return template
        if isinstance(template.route, Gathered | Traced):
            raise UsageError(
                f"{where}: {codec} on links of a route that has no codec, `{name(template.route)}`"
            )
        slow = self._question.graph.slow_pairs()
        rule: LinksRule | None = (
            None if links is not None else "slow links" if slow else "links between hosts"
        )
        if links is not None:
            given = tuple(sorted(tuple(pair) for pair in links))
            made = msgspec.structs.replace(template, codec=codec, codec_links=given)
        else:
            made = with_codec(template, codec, slow or self._question.graph.remote_pairs())
            if not made.codec_links:
                return template
        made = msgspec.structs.replace(made, rule=msgspec.structs.replace(made.rule, links=rule))
        return self._checked(pieces, made, where)

    def _pieces(self, variables: Part | Iterable[Part]) -> list[Piece]:
        single = isinstance(variables, Variable | str) or (
            isinstance(variables, tuple) and len(variables) == 3 and isinstance(variables[1], int)
        )
        parts = [variables] if single else variables
        if not isinstance(parts, Iterable):
            raise UsageError(
                f"{variables!r} is no variable, and no list of them\nhint: `job.variables` has all of them"
            )
        pieces = [self._piece(part) for part in parts]
        if not pieces:
            raise UsageError("a bucket without variables\nhint: leave it out")
        kinds = {each.dtype: each.name for each, _, _ in pieces}
        if len(kinds) > 1:
            (one, first), (other, second), *_ = kinds.items()
            raise UsageError(
                f"`{first}` is {one} and `{second}` {other}: a bucket has one element type\n"
                "hint: `job.groups` makes groups of one type"
            )
        return pieces

    def _piece(self, part: object) -> Piece:
        what, *ends = part if isinstance(part, tuple) and part else (part,)
        named = what.name if isinstance(what, Variable) else what
        known = self._by_name.get(named) if isinstance(named, str) else None
        if known is None:
            close = difflib.get_close_matches(str(named), self._by_name, n=5, cutoff=0.3)
            names = ", ".join(close or list(self._by_name)[:5])
            raise UsageError(f"the model has no variable `{named}`\nhint: it has {names}")
        if not ends:
            return known, 0, known.elements
        if (
            len(ends) == 2
            and all(type(end) is int for end in ends)
            and 0 <= ends[0] < ends[1] <= known.elements
        ):
            return known, ends[0], ends[1]
        raise UsageError(
            f"{tuple(ends)} is no part of `{known.name}`, which has {known.elements} elements\n"
            "hint: (variable, first element, one after the last)"
        )

    @cached_property
    def _by_name(self) -> dict[str, Variable]:
        return {each.name: each for each in self._question.profile.gradients}


def _named(pieces: Sequence[Piece]) -> str:
    """Return the names of a bucket's variables, as far as there is space in a message."""
    names = list(dict.fromkeys(each.name for each, _, _ in pieces))
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(f"`{each}`" for each in names[:NAMED_MAX]) + more


def _route(given: object, where: str) -> Route:
    """Return a route, read anew; UsageError for anything else."""
    if not isinstance(given, Route):
        raise UsageError(
            f"{where}: {given!r} is no route\nhint: `job.ring`, `job.owned(…)`, `job.rows(…)`, `AllReduce(…)` or `Traced(…)`"
        )
    return _read(given, type(given), where)


def _read(given: T, kind: type[T], where: str) -> T:
    """Return what has the right types throughout; UsageError for anything else."""
    try:
        return typed.of_builtins(msgspec.to_builtins(given), kind)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{where}: {error}\nhint: numbers of ranks and shares are whole numbers") from None


def _is_hashable(key: object) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _line() -> Line:
    """File and line of the innermost caller outside Hocket; without one, of the outermost."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HOCKET):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
