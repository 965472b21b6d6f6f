"""int8 with a scale per block, and error feedback: a quarter of the bytes; the next step carries the rounding error.

Each rank sends its codes to all ranks, which decode and add in the same order, and get the same bits (Seide et al. 2014;
Karimireddy et al. 2019).
"""

from typing import ClassVar

from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class Int8(Policy):
    """The mean of all ranks' gradients in int8; f32."""

    contract = "same"
    parameters: ClassVar[dict[str, Value]] = {"block": 512}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Encode, gather the codes, decode and add."""
        n, m, block = cx.world, buffer.elements, int(cx.agreed("block"))
        blocks = -(-m // block)
        left = cx.state("left", like=buffer)
        cx.reduce(left, buffer)
        codes, scales = cx.alloc(n * m, "i8"), cx.alloc(n * blocks)
        own, own_scales = cx.split(codes, n)[cx.rank], cx.split(scales, n)[cx.rank]
        cx.apply("quantise.int8", [buffer], [own, own_scales], block)
        sent = cx.alloc(m)
        cx.apply("dequantise.int8", [own, own_scales], [sent], block)
        cx.sub(buffer, sent, into=left)
        cx.all_gather(codes)
        cx.all_gather(scales)
        cx.fill(buffer, 0)
        for part, scale in zip(cx.split(codes, n), cx.split(scales, n), strict=True):
            cx.apply("dequantise_add.int8", [part, scale], [buffer], block)
        cx.scale(buffer, 1 / n)
