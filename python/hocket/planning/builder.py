"""`Builder`: the class that users extend to decide by a rule of their own how each variable's gradient travels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

if TYPE_CHECKING:
    from hocket.artefacts.plan import Bucket
    from hocket.planning.job import Job

Value = int | float | str | bool
"""Types of settings, beside what `msgspec` reads from a text, such as a `Literal`."""

Tries = Mapping[str, Sequence[Value]]
"""Values to try, by the names of settings."""


class Builder(Struct, kw_only=True, forbid_unknown_fields=True):
    """Rule that makes a plan: AutoDist's strategy builder. The annotated fields of a subclass are its settings.

    A builder is asked for the whole plan of a job at once, by one process, before or beside training; ranks get the plan. It must
    make the same plan each time, so it keeps nothing on `self`, and draws by a seed.

    >>> class Rings(Builder):
    ...     together: int = 8
    ...
    ...     def build(self, job):
    ...         for at in range(0, len(job.dense), self.together):
    ...             yield job.bucket(job.dense[at : at + self.together], AllReduce(algorithm="ring"))
    >>> Rings(together=2).together
    2
    """

    tries: ClassVar[Tries] = {}
    """Values to try of settings that are not given: the fastest predicted plan is the builder's."""

    def build(self, job: Job) -> Iterable[Bucket]:
        """Yield buckets, made by `job.bucket`, that have every element of every variable of `job` once.

        Those that are ready first go first, unless their priorities differ. A sparse variable may be left out: it travels as rows.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `build(self, job)`")

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: the next call would make another plan."""
        raise AttributeError(f"a builder keeps nothing: `{name}` is set on {type(self).__name__}")

    @property
    def settings(self) -> dict[str, Value]:
        """Settings by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}
