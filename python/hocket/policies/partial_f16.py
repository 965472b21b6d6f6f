"""f16 only on slow links, sums in f32: a ring that converts on its slow hops alone (SDCC, case 1).

Casting, adding and moving are one op each after fusion: only data for a slow link is written in f16. The rank that
completes a part rounds it once, so that all ranks end with the same bits.
"""

from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy


class PartialF16(Policy):
    """Mean over a ring; hops slower than half of the fastest hop between hosts carry f16."""

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Reduce-scatter, then all-gather, around the ranks in order."""
        n, parts = cx.world, cx.split(buffer, cx.world)
        after, before = (cx.rank + 1) % n, (cx.rank - 1) % n
        hops = [
            cx.link((r + 1) % n, r).bandwidth if cx.hosts[r] != cx.hosts[(r + 1) % n] else 0 for r in range(n)
        ]
        wires = ["f16" if 0 < hop < max(hops) / 2 and buffer.dtype == "f32" else buffer.dtype for hop in hops]
        for step in range(1, n):
            cx.send(parts[(cx.rank - step) % n], after, wire=wires[cx.rank])
            cx.recv_reduce(parts[(cx.rank - step - 1) % n], before, wire=wires[before])
        cx.scale(parts[cx.rank], 1 / n)
        if "f16" in wires:
            cx.round(parts[cx.rank], "f16")
        for step in range(n - 1):
            cx.send(parts[(cx.rank - step) % n], after, wire=wires[cx.rank])
            cx.recv(parts[(cx.rank - step - 1) % n], before, wire=wires[before])
