"""Top-k of each chunk in 2 bits, and error feedback with a decay: 1/205 of f32's bytes, from each rank to all.

The form of SparseLoCo (arXiv 2508.15706), for progress of ranks that step alone: `count` elements of each `chunk` travel, as a
place of 16 bits, a sign and one of two magnitudes. The rest is kept: kept + sent = decay * residual + progress.
"""

from typing import ClassVar

from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class SparseInt2(Policy):
    """The mean of every rank's largest elements of each chunk, in 2 bits; f32."""

    contract = "same"
    parameters: ClassVar[dict[str, Value]] = {"chunk": 4096, "count": 32, "decay": 0.95}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Select and encode, gather, decode and add."""
        n, m = cx.world, buffer.elements
        chunk, count = int(cx.agreed("chunk")), int(cx.agreed("count"))
        k, chunks = m // chunk * count + min(count, m % chunk), -(-m // chunk)
        left = cx.state("left", like=buffer)
        cx.scale(left, float(cx.agreed("decay")))
        cx.reduce(buffer, left)
        places, codes, scales = (
            cx.alloc(n * 2 * k, "u8"),
            cx.alloc(n * -(-k // 4), "u8"),
            cx.alloc(n * 2 * chunks),
        )
        parts = list(zip(*(cx.split(each, n) for each in (places, codes, scales)), strict=True))
        cx.apply("top_k.int2", [left], parts[cx.rank], chunk, count)
        cx.fill(buffer, 0)
        cx.apply("scatter_add.int2", parts[cx.rank], [buffer], chunk, count)
        cx.sub(left, buffer, into=left)
        for each in (places, codes, scales):
            cx.all_gather(each)
        cx.fill(buffer, 0)
        for part in parts:
            cx.apply("scatter_add.int2", part, [buffer], chunk, count)
        cx.scale(buffer, 1 / n)
