"""PowerSGD, rank r: a gradient travels as the product of two thin matrices (Vogels, Karimireddy and Jaggi 2019).

The bucket is treated as a matrix as square as its length allows, with one power iteration a step, warm-started from the
last, and
error feedback for the residual of the product.
"""

from math import isqrt
from typing import ClassVar

from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class PowerSGD(Policy):
    """The mean gradient's rank-r approximation; f32."""

    contract = "same"
    parameters: ClassVar[dict[str, Value]] = {"rank": 4, "fusion_bytes": 1 << 20}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """P = M·Q, mean, orthonormal; Q = Mᵀ·P, mean; M̂ = P·Qᵀ."""
        r = int(cx.agreed("rank"))
        rows = max(1, isqrt(buffer.elements))
        cols = -(-buffer.elements // rows)
        matrix, product = cx.alloc(rows * cols), cx.alloc(rows * cols)
        left, q = cx.state("left", like=buffer), cx.state("q", elements=cols * r, shared=True)
        p = cx.alloc(rows * r)
        cx.reduce(left, buffer)
        cx.copy(buffer, into=matrix[: buffer.elements])
        cx.fill(matrix[buffer.elements :], 0)
        cx.apply("seed.f32", [], [q])
        cx.apply("matmul.f32", [matrix, q], [p], rows, cols, r, 0, 0)
        cx.all_reduce(p, op="mean")
        cx.apply("orthogonalise.f32", [], [p], rows, r)
        cx.apply("matmul.f32", [matrix, p], [own := cx.alloc(cols * r)], cols, rows, r, 1, 0)
        cx.all_reduce(own, op="mean")
        cx.copy(own, into=q)
        cx.apply("matmul.f32", [p, q], [product], rows, r, cols, 0, 1)
        cx.sub(buffer, product[: buffer.elements], into=left)
        cx.copy(product[: buffer.elements], into=buffer)
