"""One rank of `python -m benches frameworks`: contenders train in turns, on the same batches.

`python -m benches.frameworks.rank CONTENDERS --out FILE [--samples N] [--turns N]`. Rank 0 writes seconds per step by contender
and turn.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median

import jax
import numpy as np

from benches.frameworks.contenders import MAKERS, Alone, Contender, Ours, bucket_a_layer
from benches.frameworks.model import batch_of

STEPS, WARM_UP = 4, 4
"""Of each turn: how many count, and how many before them do not, in which functions are compiled and an epoch begins."""

SAMPLES = 32

BALANCED = "balanced"
"""As many samples as make computation take as long as communication."""
BALANCING = 3


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contenders", type=lambda text: text.split(","))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", default=str(SAMPLES))
    parser.add_argument("--turns", type=int, default=6)
    given = parser.parse_args()
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    contenders = {name: make(rank, world) for name, make in MAKERS.items() if name in given.contenders}
    random = np.random.default_rng(rank)
    samples = _balanced(random, world) if given.samples == BALANCED else int(given.samples)
    steps_s: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for turn in range(given.turns):
        for name in sorted(contenders, reverse=bool(turn % 2)):
            steps_s[name].append(_turn(contenders[name], random, samples))
    if rank == 0:
        given.out.write_text(json.dumps(steps_s))


def _turn(contender: Contender, random: np.random.Generator, samples: int) -> list[float]:
    """Seconds of its steps."""
    step = contender.begin()
    seen_s = []
    for _ in range(WARM_UP + STEPS):
        batch = batch_of(random, samples)
        began_s = time.perf_counter()
        jax.block_until_ready(step(batch))
        seen_s.append(time.perf_counter() - began_s)
    return seen_s[WARM_UP:]


def _balanced(random: np.random.Generator, world: int) -> int:
    """Samples of a batch, the same on all ranks: in rounds, since part of a step does not depend on them."""
    sending, computing = Ours(plan=bucket_a_layer(world), learns=False), Alone()
    samples, sent_s = SAMPLES, median(_turn(sending, random, SAMPLES))
    for _ in range(BALANCING):
        computed_s = median(_turn(computing, random, samples))
        samples = max(1, round(samples * sending.mean(sent_s / computed_s)))
    return samples


if __name__ == "__main__":
    main()
