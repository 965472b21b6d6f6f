"""4 bits with a scale per block, and error feedback with a decay: an eighth of the bytes, and the scales, from each rank to all.

What rounding leaves is kept, and a share of it, `decay`, is added before the next rounding:
kept + sent = decay * residual + gradient. A decay below 1 forgets what is old, where ranks step alone and the anchor has moved
on (SparseLoCo, arXiv 2508.15706). Ranks decode in the same order, and get the same bits.
"""

from typing import ClassVar

from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class Int4(Policy):
    """The mean of all ranks' gradients in 4 bits; f32."""

    contract = "same"
    parameters: ClassVar[dict[str, Value]] = {"block": 128, "decay": 1.0}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Encode, gather the codes, decode and add."""
        n, m, block = cx.world, buffer.elements, int(cx.agreed("block"))
        half, blocks = -(-m // 2), -(-m // block)
        left = cx.state("left", like=buffer)
        cx.scale(left, float(cx.agreed("decay")))
        cx.reduce(left, buffer)
        codes, scales, sent = cx.alloc(n * half, "u8"), cx.alloc(n * blocks), cx.alloc(m)
        own = [cx.split(each, n)[cx.rank] for each in (codes, scales)]
        cx.apply("quantise.int4", [buffer], own, block)
        cx.apply("dequantise.int4", own, [sent], block)
        cx.sub(buffer, sent, into=left)
        cx.all_gather(codes)
        cx.all_gather(scales)
        cx.fill(buffer, 0)
        for part, scale in zip(cx.split(codes, n), cx.split(scales, n), strict=True):
            cx.apply("dequantise_add.int4", [part, scale], [buffer], block)
        cx.scale(buffer, 1 / n)
