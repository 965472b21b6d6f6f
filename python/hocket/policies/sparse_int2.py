"""Top-k of each chunk in 2 bits, and error feedback with a decay: 1/205 of f32's bytes, from each rank to all.

The form of SparseLoCo (arXiv 2508.15706), for progress of ranks that step alone: `count` elements of each `chunk` travel, as a
place of 16 bits, a sign and one of two magnitudes. The rest is kept: kept + sent = decay * residual + progress. With two `levels`,
racks are summed first, and one rank of each selects.
"""

from typing import ClassVar

from hocket.policies.levels import levels
from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class SparseInt2(Policy):
    """The mean of every rank's largest elements of each chunk, in 2 bits; f32."""

    contract = "same"
    parameters: ClassVar[dict[str, Value]] = {"chunk": 4096, "count": 32, "decay": 0.95, "levels": 1}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Sum within groups, select and encode on leaders, gather, decode and add."""
        group, leaders = levels(cx)
        n, m = len(leaders), buffer.elements
        chunk, count = int(cx.agreed("chunk")), int(cx.agreed("count"))
        k, chunks = m // chunk * count + min(count, m % chunk), -(-m // chunk)
        coded = cx.alloc(n * 2 * k, "u8"), cx.alloc(n * -(-k // 4), "u8"), cx.alloc(n * 2 * chunks)
        parts = list(zip(*(cx.split(each, n) for each in coded), strict=True))
        cx.reduce_to(buffer, group[0], group=group)
        if cx.rank == group[0]:
            left, own = cx.state("left", like=buffer), parts[leaders.index(cx.rank)]
            cx.scale(left, float(cx.agreed("decay")))
            cx.reduce(buffer, left)
            cx.apply("top_k.int2", [left], own, chunk, count)
            cx.fill(buffer, 0)
            cx.apply("scatter_add.int2", own, [buffer], chunk, count)
            cx.sub(left, buffer, into=left)
            for each in coded:
                cx.all_gather(each, group=leaders)
        for each in coded:
            cx.broadcast(each, group[0], group=group)
        cx.fill(buffer, 0)
        for part in parts:
            cx.apply("scatter_add.int2", part, [buffer], chunk, count)
        cx.scale(buffer, 1 / cx.world)
