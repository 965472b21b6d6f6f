"""Who sends how much to whom? Bytes per step of every rank pair, from the send records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hocket.report import quantity
from hocket.report.markup import joined, tag
from hocket.report.material import INSTANCE, SEND, STEP, Material
from hocket.report.matrix import heat_map
from hocket.report.section import Section, absent

NAME, QUESTION = "traffic", "Who sends how much to whom?"


def section(material: Material) -> Section:
    """A heat map of bytes per step, and the share that leaves a rack."""
    total = sent_bytes(material)
    steps = _steps(material)
    if not total.any() or not steps:
        return absent(NAME, QUESTION, "No sends were recorded in this trace.")
    per_step = total / steps
    world = material.run.world
    racks = [material.rack(rank) for rank in range(world)]
    names = [f"{rank} · {material.host(rank)}" for rank in range(world)]
    crossing = sum(float(per_step[a, b]) for a in range(world) for b in range(world) if racks[a] != racks[b])
    words = f"{quantity.size(float(per_step.sum()))} are sent per step"
    if len(set(racks)) > 1:
        words += (
            f", of which {quantity.size(crossing)} ({quantity.share(crossing / per_step.sum())}) leave a rack"
        )
    matrix = heat_map(
        per_step.tolist(), names, racks, caption="Bytes per step, sender in rows", show=_size_or_blank
    )
    numbers = {"steps": steps, "bytes_per_step": per_step.tolist(), "between_racks_bytes_per_step": crossing}
    return Section(NAME, QUESTION, joined((tag("p", f"{words}."), matrix)), numbers=numbers)


def sent_bytes(material: Material) -> npt.NDArray[np.float64]:
    """[sender, receiver], payload bytes of the whole trace."""
    world = material.run.world
    total = np.zeros((world, world))
    for rank in material.ranks:
        sends = material.of_kind(rank, SEND)
        sends = sends[sends["peer"] < world]
        total[rank] = np.bincount(sends["peer"], sends["bytes"], minlength=world)
    return total


def _steps(material: Material) -> int:
    """Steps recorded; where nothing marked steps, launches of the most launched program."""
    marked = [len(material.of_kind(rank, STEP)) for rank in material.ranks]
    if any(marked):
        return max(marked)
    return max(
        (int(np.unique(material.of_kind(rank, INSTANCE)["instance"]).size) for rank in material.ranks),
        default=0,
    )


def _size_or_blank(value: float) -> str:
    return quantity.size(value) if value else "·"
