"""One clock for all ranks: readings of a host's clock against the job's, and the offset between them that aligns times.

A reading means that at `at_ns` of the host's clock the job's clock was ahead by `offset_ns`, give or take `error_ns`. Between
two readings the offset is assumed to change evenly: that is the drift. If a clock keeps its rate between readings, an
aligned time is off by no more than the readings' errors, weighted by distance. Before the first and after the last
reading (a crash ends a run so) the bound grows by DRIFT_MAX with the distance. This file knows nothing of records or of how
readings are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DRIFT_MAX = 500e-6
"""Drift of two clocks against each other: the kernel steers CLOCK_MONOTONIC by no more (adjtimex(2)), quartz is off by
a fifth of it."""


Moment = Annotated[int, Meta(ge=-(2**62), le=2**62)]


class Reading(Struct, frozen=True):
    """Nanoseconds: a time of the local clock, the offset to the job's clock, and the bound of the offset's error."""

    at_ns: Moment
    offset_ns: Moment
    error_ns: Annotated[int, Meta(ge=0, le=2**62)]


@dataclass(frozen=True)
class Alignment:
    """Aligns a rank's times with the job's. Without readings there is one clock and nothing to do."""

    readings: tuple[Reading, ...] = ()

    @staticmethod
    def of(readings: tuple[Reading, ...]) -> Alignment:
        """Order readings by time, without those whose moment another reading bounds more closely."""
        closest = {own.at_ns: own for own in sorted(readings, key=lambda own: (own.at_ns, -own.error_ns))}
        kept: list[Reading] = []
        for own in closest.values():
            if kept and _bounds_better(kept[-1], own):
                continue
            while kept and _bounds_better(own, kept[-1]):
                kept.pop()
            kept.append(own)
        return Alignment(tuple(kept))

    @property
    def drift_ppm(self) -> float | None:
        """Drift of the host's clock against the job's, in millionths; None: fewer than two readings."""
        if len(self.readings) < 2:
            return None
        first, last = self.readings[0], self.readings[-1]
        return 1e6 * (last.offset_ns - first.offset_ns) / (last.at_ns - first.at_ns)

    def offsets_ns(self, times_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the offset to add to each time of the host's clock."""
        import numpy as np  # noqa: PLC0415  # writers of traces do not need it

        if not self.readings:
            return np.zeros(len(times_ns), np.int64)
        # Offsets may be days: interpolate the differences to the first, which fit a float.
        base, since = self.readings[0], self._since(times_ns)
        rises = [float(each.offset_ns - base.offset_ns) for each in self.readings]
        rise: npt.NDArray[np.float64] = np.interp(since, self._moments(), rises)
        return np.rint(rise).astype(np.int64) + base.offset_ns

    def errors_ns(self, times_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the bound of each aligned time's error."""
        import numpy as np  # noqa: PLC0415

        if not self.readings:
            return np.zeros(len(times_ns))
        since, moments = self._since(times_ns), self._moments()
        beyond = np.maximum(0.0, np.maximum(moments[0] - since, since - moments[-1]))
        errors: npt.NDArray[np.float64] = np.interp(
            since, moments, [float(each.error_ns) for each in self.readings]
        )
        return errors + DRIFT_MAX * beyond

    def _moments(self) -> list[float]:
        return [float(each.at_ns - self.readings[0].at_ns) for each in self.readings]

    def _since(self, times_ns: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return (times_ns - self.readings[0].at_ns).astype(float)


def _bounds_better(other: Reading, own: Reading) -> bool:
    return other.error_ns + DRIFT_MAX * abs(other.at_ns - own.at_ns) < own.error_ns
