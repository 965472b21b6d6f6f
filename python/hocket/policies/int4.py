"""4 bits with a scale per block, and error feedback with a decay: an eighth of the bytes, and the scales, from each rank to all.

What rounding leaves is kept, and a share of it, `decay`, is added before the next rounding:
kept + sent = decay * residual + gradient. A decay below 1 forgets what is old, where ranks step alone and the anchor has moved
on (SparseLoCo, arXiv 2508.15706). Ranks decode in the same order, and get the same bits. With two `levels`, racks are summed
first, and one rank of each encodes.
"""

from typing import ClassVar

from hocket.policies.levels import levels
from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class Int4(Policy):
    """The mean of all ranks' gradients in 4 bits; f32."""

    contract = "same"
    parameters: ClassVar[dict[str, Value]] = {"block": 128, "decay": 1.0, "levels": 1}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Sum within groups, encode on leaders, gather the codes, decode and add."""
        group, leaders = levels(cx)
        n, m, block = len(leaders), buffer.elements, int(cx.agreed("block"))
        codes, scales = cx.alloc(n * -(-m // 2), "u8"), cx.alloc(n * -(-m // block))
        cx.reduce_to(buffer, group[0], group=group)
        if cx.rank == group[0]:
            left, sent = cx.state("left", like=buffer), cx.alloc(m)
            cx.scale(left, float(cx.agreed("decay")))
            cx.reduce(left, buffer)
            own = [cx.split(each, n)[leaders.index(cx.rank)] for each in (codes, scales)]
            cx.apply("quantise.int4", [buffer], own, block)
            cx.apply("dequantise.int4", own, [sent], block)
            cx.sub(buffer, sent, into=left)
            cx.all_gather(codes, group=leaders)
            cx.all_gather(scales, group=leaders)
        cx.broadcast(codes, group[0], group=group)
        cx.broadcast(scales, group[0], group=group)
        cx.fill(buffer, 0)
        for part, scale in zip(cx.split(codes, n), cx.split(scales, n), strict=True):
            cx.apply("dequantise_add.int4", [part, scale], [buffer], block)
        cx.scale(buffer, 1 / cx.world)
