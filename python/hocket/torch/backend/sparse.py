"""All-reduce of sparse COO tensors: the entries of all ranks are gathered and summed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hocket.torch.backend import tensors
from hocket.torch.backend.collectives import Collectives


def check(buffers: Sequence[torch.Tensor]) -> None:
    """Raise TypeError for tensors of a device."""
    for each in buffers:
        if not each.is_cpu:
            raise TypeError(
                f"backend hocket adds sparse tensors of the CPU, this one is on {each.device}\n"
                "hint: tensor.cpu(), or tensor.to_dense()"
            )


def all_reduce(group: Collectives, buffers: Sequence[torch.Tensor], members: int) -> None:
    """Sum each of `buffers` over all ranks, in place; ranks may have different numbers of entries."""
    for sparse in buffers:
        own = sparse.coalesce()
        count = torch.tensor([own._nnz()], device="cpu")
        counts = [torch.zeros_like(count) for _ in range(members)]
        group.all_gather(tensors.lend(count), tensors.lend_all(counts))
        parts = []
        for each in (own.indices().t().contiguous(), own.values().contiguous()):
            gathered = [each.new_empty((int(n), *each.shape[1:])) for n in counts]
            group.all_gather(tensors.lend(each), tensors.lend_all(gathered))
            parts.append(torch.cat(gathered))
        sparse.copy_(torch.sparse_coo_tensor(parts[0].t(), parts[1], sparse.shape).coalesce())
