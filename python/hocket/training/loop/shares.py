"""Shares of ranks in a batch, as a script gives them to `hk.batches`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from hocket.errors import UsageError
from hocket.training.loop.changes import Worker

Shares = Sequence[float] | Mapping[str, float] | Literal["measured"]
"""Number for each rank, or for each host, in proportion to which ranks get samples; or by the speeds that they have."""


def check(shares: object) -> None:
    """Raise UsageError if these cannot be shares of any job."""
    if shares == "measured":
        return
    if isinstance(shares, str | bytes) or not isinstance(shares, Sequence | Mapping) or not len(shares):
        raise UsageError(
            f"batches: shares={shares!r}: a number for each rank, a dictionary with one for each host, or 'measured'"
        )
    named = shares.items() if isinstance(shares, Mapping) else enumerate(shares)
    for name, share in named:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < math.inf:
            whose = f"host {name}" if isinstance(shares, Mapping) else f"rank {name}"
            raise UsageError(
                f"batches: the share of {whose} is {share!r}: shares are numbers above 0\n"
                "hint: in proportion to samples per second, such as [1, 1, 0.5]; leave a host out that is too slow"
            )


def of_workers(shares: Sequence[float] | Mapping[str, float], workers: Sequence[Worker]) -> list[float]:
    """Return the share of each worker. UsageError: they are of other ranks or hosts."""
    if isinstance(shares, Mapping):
        if missing := sorted({each.host for each in workers} - set(shares)):
            raise UsageError(
                f"batches: no share for {', '.join(missing)}: shares are of {', '.join(sorted(shares))}\n"
                "hint: one for each host of the job, by its name, which all of its ranks have"
            )
        return [float(shares[each.host]) for each in workers]
    if len(shares) != len(workers):
        raise UsageError(
            f"batches: {len(shares)} shares for {len(workers)} ranks\nhint: one for each rank, in their order"
        )
    return [float(each) for each in shares]


def check_dealt(batch: int, shares: Sequence[float], workers: Sequence[Worker]) -> None:
    """Raise UsageError if a rank's share comes to less than half a sample."""
    whole = sum(shares)
    least = min(range(len(shares)), key=shares.__getitem__)
    samples = batch * len(shares) * shares[least] / whole
    if samples < 0.5:
        enough = math.ceil(batch * 0.5 / samples)
        raise UsageError(
            f"batches: of a batch of {batch * len(shares)} samples, the share of {workers[least]} is {samples:.2g}\n"
            f"hint: a batch_size of at least {enough}, or leave the rank out"
        )
