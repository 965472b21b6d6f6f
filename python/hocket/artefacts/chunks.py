"""Default sizes of buckets and chunks."""

from __future__ import annotations

BUCKET_BYTES = 4 << 20
"""Size of a bucket: large enough to make the cost per bucket negligible, small enough to overlap with backward."""

FIRST_BUCKET_BYTES = 1 << 20
"""Size of the first bucket, which is ready early in backward: a small one puts the network to work."""

CHUNK_BYTES = 262_144
"""Maximum size between hosts: enough to make the cost per message negligible."""

CHUNK_BYTES_MIN = 65_536
"""Minimum size between hosts: smaller chunks cost more processor time than a slow link gains from them."""

CHUNK_S = 5e-3
"""Maximum time of a chunk on the slowest link: the link is then busy early, and to the end. In an all-reduce of 12 MB
over two racks, a trunk of 100 Mbit/s was busy for 0.955 of the time with 64 KiB, 0.935 with 256 KiB; over loopback 64
KiB took twice as long."""

POLICY_CHUNK_BYTES = 524_288
"""Size for a policy's messages, which may or may not leave a host. Within one host, of 128 KiB to 2 MiB, 512 KiB and 1 MiB
were fastest for 25 MB on 4 ranks (4.1 ms; 256 KiB took 4.4 ms)."""

SHARED_CHUNK_BYTES = 8_388_608
"""Size within one host: in place, a chunk costs each member two posts and perhaps a wake-up, and urgent work waits for it,
2 ms at most. 25 MB on 4 ranks took 1.3 times as long as one native loop with 2 MiB, 1.15 with 4 MiB, 1.1 with 8 MiB and
1.05 all at once."""


def chunk_bytes(slowest_bit_per_s: float) -> int:
    """Return the chunk size of messages between hosts whose slowest link has that rate; a power of two.

    >>> chunk_bytes(100e6), chunk_bytes(250e6), chunk_bytes(10e9)
    (65536, 131072, 262144)
    """
    fitting = min(max(slowest_bit_per_s / 8 * CHUNK_S, CHUNK_BYTES_MIN), CHUNK_BYTES)
    return 1 << (int(fitting).bit_length() - 1)
