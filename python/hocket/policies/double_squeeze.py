"""Codes of 8 or 4 bits there and back, and error feedback on both ways (Tang et al. 2019, arXiv 1905.05957).

Each rank adds the codes that all others send it of its part, and sends codes of the mean back. So a rank sends
2 (n - 1) / n of a bucket's codes, whatever the number of ranks: a quarter or an eighth of a ring's bytes. With two `levels`,
racks are summed first, and one rank of each exchanges codes: n is the number of racks.

What rounding leaves is kept for the next step: of what a rank sent by itself, and that of its part's mean times the number of
ranks, since the next mean divides it by that.
"""

from typing import ClassVar

from hocket.policies.levels import levels
from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class DoubleSqueeze(Policy):
    """The mean of all ranks' gradients in codes of `bits`, each part summed by one rank; f32."""

    contract = "same"
    parameters: ClassVar[dict[str, Value]] = {"bits": 8, "block": 128, "levels": 1}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Sum within groups, exchange codes among their leaders, decode the mean everywhere."""
        group, leaders = levels(cx)
        n, m = len(leaders), buffer.elements
        bits, block = int(cx.agreed("bits")), int(cx.agreed("block"))
        blocks = -(-m // (n * block))
        padded, kind = n * blocks * block, {8: "i8", 4: "u8"}[bits]
        mean, whole = [cx.alloc(padded * bits // 8, kind), cx.alloc(n * blocks)], cx.alloc(padded)
        cx.reduce_to(buffer, group[0], group=group)
        if cx.rank == group[0]:
            self._exchange(cx, buffer, whole, mean, leaders)
        for each in mean:
            cx.broadcast(each, group[0], group=group)
        cx.apply(f"dequantise.int{bits}", mean, [whole], block)
        cx.copy(whole[:m], into=buffer)

    def _exchange(
        self, cx: Context, buffer: Buffer, whole: Buffer, mean: list[Buffer], leaders: tuple[int, ...]
    ) -> None:
        """Encode, exchange parts, decode and add; encode the mean, gather."""
        n, m, at = len(leaders), buffer.elements, leaders.index(cx.rank)
        code, block = f"int{cx.agreed('bits')}", int(cx.agreed("block"))
        left = cx.state("left", like=buffer)
        cx.reduce(left, buffer)
        cx.copy(buffer, into=whole[:m])
        if whole.elements > m:
            cx.fill(whole[m:], 0)
        codes, sent = [cx.alloc(each.elements, each.dtype) for each in mean], cx.alloc(whole.elements)
        cx.apply(f"quantise.{code}", [whole], codes, block)
        cx.apply(f"dequantise.{code}", codes, [sent], block)
        kept = cx.sub(whole, sent)
        own, own_sent, own_kept = (cx.split(each, n)[at] for each in (whole, sent, kept))
        received = [cx.split(cx.all_to_all(each, group=leaders), n) for each in codes]
        for other in range(n):
            if other != at:
                cx.apply(f"dequantise_add.{code}", [each[other] for each in received], [own], block)
        cx.scale(own, 1 / cx.world)
        own_mean = [cx.split(each, n)[at] for each in mean]
        cx.apply(f"quantise.{code}", [own], own_mean, block)
        cx.apply(f"dequantise.{code}", own_mean, [own_sent], block)
        cx.sub(own, own_sent, into=own_kept)
        cx.scale(own_kept, cx.world)
        cx.copy(kept[:m], into=left)
        for each in mean:
            cx.all_gather(each, group=leaders)
