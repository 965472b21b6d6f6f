"""How a job's gradients travel: buckets, the synchroniser of each, and the rank order."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from hocket.artefacts.algorithms import ALL_REDUCES, BY_NAME

Codec = Literal["none", "f16", "bf16"]

BUCKET_BYTES = 4 << 20
"""Of a bucket: large enough that what each bucket costs vanishes, small enough to overlap with backward."""

FIRST_BUCKET_BYTES = 1 << 20
"""Of the first bucket, which is ready early in backward: a small one puts the network to work."""

CHUNK_BYTES = 262_144
"""Between hosts, at most: enough to make what a message costs vanish."""

CHUNK_BYTES_MIN = 65_536
"""Between hosts, at least: smaller ones take more of a processor than a slow link gains by them."""

CHUNK_S = 5e-3
"""What a chunk takes on the slowest link, at most: the link is busy soon, and to the end. Of an all-reduce of 12 MB over two racks,
a trunk of 100 Mbit/s was busy for 0.955 of the time with 64 KiB, 0.935 with 256 KiB; over loopback 64 KiB took twice as long."""

POLICY_CHUNK_BYTES = 524_288
"""Of a policy's messages, of which nobody knows beforehand whether they leave a host. Within one, of 128 KiB to 2 MiB, 512 KiB
and 1 MiB were fastest for 25 MB on 4 ranks (4.1 ms; 256 KiB took 4.4 ms)."""

SHARED_CHUNK_BYTES = 8_388_608
"""In place a chunk costs each member two posts and perhaps a wake-up, and what is urgent waits for it, 2 ms at most. 25 MB on 4
ranks took 1.3 times what one native loop did with 2 MiB, 1.15 with 4 MiB, 1.1 with 8 MiB and 1.05 all at once."""


def chunk_bytes(slowest_bit_per_s: float) -> int:
    """How finely messages between hosts are cut where their slowest link has that rate; a power of two.

    >>> chunk_bytes(100e6), chunk_bytes(250e6), chunk_bytes(10e9)
    (65536, 131072, 262144)
    """
    fitting = min(max(slowest_bit_per_s / 8 * CHUNK_S, CHUNK_BYTES_MIN), CHUNK_BYTES)
    return 1 << (int(fitting).bit_length() - 1)


class Synchroniser(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one bucket is all-reduced.

    `algorithm` is one of `hocket.artefacts.algorithms.ALL_REDUCES`; `in_place` is for ranks of one host. `sizes` are the
    numbers that it takes: group sizes of `two_level`, over logical ranks in order; the base of `bcube`; how many ranks own
    the parts of `parameter_server`, the first ones; empty otherwise. `codec` is used on `codec_links`, ordered pairs of
    physical ranks (source, destination). `chunk_bytes` is the pipelining unit.

    Raises ValueError for an algorithm that no bucket can take, or numbers that it does not take.
    """

    algorithm: str
    sizes: tuple[int, ...] = ()
    codec: Codec = "none"
    codec_links: tuple[tuple[int, int], ...] = ()
    chunk_bytes: int = CHUNK_BYTES

    def __post_init__(self) -> None:
        """Checks that the algorithm takes these numbers."""
        if self.algorithm not in ALL_REDUCES:
            raise ValueError(f"`{self.algorithm}` is not one of {', '.join(ALL_REDUCES)}")
        takes, count = BY_NAME[self.algorithm].takes, len(self.sizes)
        if (takes == "nothing" and count) or (takes in ("base", "servers") and count != 1):
            raise ValueError(f"`{self.algorithm}` takes {takes}, not {list(self.sizes)}")


class Bucket(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gradients that travel together, in the order they lie in the bucket. Lower `priority` goes first."""

    gradients: tuple[str, ...]
    elements: int
    dtype: str
    priority: int
    synchroniser: Synchroniser


class Candidate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice that the planner scored. `measured_step_s` is filled in by runs that measured it."""

    label: str
    predicted_step_s: float
    measured_step_s: float | None = None


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every rank of the job compiles to the same programs.

    `order[logical]` is the physical rank that plays logical rank `logical`. `label` names the choice among
    `candidates`, `reason` says in a sentence why.
    """

    version: int = 1
    world: int
    order: tuple[int, ...]
    buckets: tuple[Bucket, ...]
    label: str
    reason: str
    predicted_step_s: float
    candidates: tuple[Candidate, ...] = ()
