"""Section on traffic between ranks: bytes per step of every rank pair, from the send records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hocket.tools.report import quantity
from hocket.tools.report.markup import joined, tag
from hocket.tools.report.material import INSTANCE, SEND, STEP, Material
from hocket.tools.report.matrix import SIDE_MAX, heat_map
from hocket.tools.report.section import Section, absent

NAME, QUESTION = "traffic", "Who sends how much to whom?"


def section(material: Material) -> Section:
    """Return a heat map of bytes per step, and the share that leaves a rack."""
    total = sent_bytes(material)
    steps = _steps(material)
    if not total.any() or not steps:
        return absent(NAME, QUESTION, "No sends were recorded in this trace.")
    per_step = total / steps
    racks = [material.rack(rank) for rank in range(material.run.world)]
    names = [f"{rank} · {material.host(rank)}" for rank in range(material.run.world)]
    numbered = np.unique([rack or "" for rack in racks], return_inverse=True)[1]
    crossing = float(per_step[numbered[:, None] != numbered[None, :]].sum())
    words = f"{quantity.size(float(per_step.sum()))} are sent per step"
    if len(set(racks)) > 1:
        words += (
            f", of which {quantity.size(crossing)} ({quantity.share(crossing / per_step.sum())}) leave a rack"
        )
    shown = per_step[:SIDE_MAX, :SIDE_MAX].tolist()
    matrix = heat_map(shown, names, racks, caption="Bytes per step, sender in rows", show=_size_or_blank)
    pairs = [
        {"source": int(a), "destination": int(b), "bytes_per_step": float(per_step[a, b])}
        for a, b in np.argwhere(per_step)
    ]
    numbers = {"steps": steps, "between_racks_bytes_per_step": crossing, "pairs": pairs}
    return Section(NAME, QUESTION, joined((tag("p", f"{words}."), matrix)), numbers=numbers)


def sent_bytes(material: Material) -> npt.NDArray[np.float64]:
    """Return [sender, receiver]: payload bytes of all steps; bytes sent once, before them, are not part of a step."""
    world = material.run.world
    stepwise = [program.program for program in material.run.programs]
    total = np.zeros((world, world))
    for rank in material.ranks:
        sends = material.of_kind(rank, SEND)
        sends = sends[sends["peer"] < world]
        if stepwise:
            sends = sends[np.isin(sends["program"], stepwise)]
        total[rank] = np.bincount(sends["peer"], sends["bytes"], minlength=world)
    return total


def _steps(material: Material) -> int:
    """Return the number of recorded steps; where nothing marked steps, launches of the most launched program."""
    marked = [len(material.of_kind(rank, STEP)) for rank in material.ranks]
    if any(marked):
        return max(marked)
    return max(
        (int(np.unique(material.of_kind(rank, INSTANCE)["instance"]).size) for rank in material.ranks),
        default=0,
    )


def _size_or_blank(value: float) -> str:
    return quantity.size(value) if value else "·"
