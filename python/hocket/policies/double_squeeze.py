"""Codes of 8 or 4 bits there and back, and error feedback on both ways (Tang et al. 2019, arXiv 1905.05957).

Each rank adds the codes that all others send it of its part, and sends codes of the mean back. So a rank sends
2 (n - 1) / n of a bucket's codes, whatever the number of ranks: a quarter or an eighth of a ring's bytes. What rounding
leaves is kept for the next step: of what a rank sent by itself, and n times that of its part's mean, since the next mean
divides it by n.
"""

from typing import ClassVar

from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class DoubleSqueeze(Policy):
    """The mean of all ranks' gradients in codes of `bits`, each part summed by one rank; f32."""

    contract = "same"
    parameters: ClassVar[dict[str, Value]] = {"bits": 8, "block": 128}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Encode, exchange parts, decode and add; encode the mean, gather, decode."""
        n, m, at = cx.world, buffer.elements, cx.rank
        bits, block = int(cx.agreed("bits")), int(cx.agreed("block"))
        blocks = -(-m // (n * block))
        padded, kind, code = n * blocks * block, {8: "i8", 4: "u8"}[bits], f"int{bits}"
        left = cx.state("left", like=buffer)
        cx.reduce(left, buffer)
        whole, sent = cx.alloc(padded), cx.alloc(padded)
        cx.copy(buffer, into=whole[:m])
        if padded > m:
            cx.fill(whole[m:], 0)
        codes = [[cx.alloc(padded * bits // 8, kind), cx.alloc(n * blocks)] for _ in range(2)]
        cx.apply(f"quantise.{code}", [whole], codes[0], block)
        cx.apply(f"dequantise.{code}", codes[0], [sent], block)
        kept = cx.sub(whole, sent)
        own, own_sent, own_kept = (cx.split(each, n)[at] for each in (whole, sent, kept))
        received = [cx.split(cx.all_to_all(each), n) for each in codes[0]]
        for other in range(n):
            if other != at:
                cx.apply(f"dequantise_add.{code}", [each[other] for each in received], [own], block)
        cx.scale(own, 1 / n)
        mean = [cx.split(each, n)[at] for each in codes[1]]
        cx.apply(f"quantise.{code}", [own], mean, block)
        cx.apply(f"dequantise.{code}", mean, [own_sent], block)
        cx.sub(own, own_sent, into=own_kept)
        cx.scale(own_kept, n)
        cx.copy(kept[:m], into=left)
        for each in codes[1]:
            cx.all_gather(each)
        cx.apply(f"dequantise.{code}", codes[1], [whole], block)
        cx.copy(whole[:m], into=buffer)
