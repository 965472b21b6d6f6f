"""AutoDist's ranking network (eq. 3, in the sizes of the authors' code), as a contender of the closed form.

Inputs for each part of a variable are its one-hot place, group, codec and type, and its size, bandwidth and replicas. A perceptron
maps these to 32 numbers, which are summed over a variable's parts, and a bidirectional LSTM over the variables gives a score. Pairs
of plans of one cluster are ranked by the logistic loss.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import nn

from benches.strategies.sampled import Sample
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import Network
from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Owned, Plan, Served, Traced

DEVICES, GROUPS, COMPRESSORS, KINDS = 16, 600, 3, 5
PARTS_MAX = 8
"""Limit on the parts of a variable; clusters of up to eight ranks have no more."""
HIDDEN, EMBEDDED, STATE, LAYERS = 128, 32, 128, 3
BATCH, RATE, EPOCHS = 96, 2e-3, 40
SEED = 5

CODECS = {"none": 0, "f16": 1, "bf16": 2}
ROUTES = {AllReduce: 0, Owned: 1, Gathered: 2, Served: 3, Traced: 4}
WIDTH = DEVICES + GROUPS + COMPRESSORS + KINDS + 3


class Ranker(nn.Module):
    """Network with a score for each plan, higher for slower ones."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, EMBEDDED), nn.ReLU())
        self.variables = nn.LSTM(EMBEDDED, STATE, LAYERS, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * STATE, 1)

    def forward(self, parts: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """`parts`: by plan, variable, part, and WIDTH numbers; `present`: 1 where there is a part, by plan, variable, part."""
        embedded = (self.part(parts) * present.unsqueeze(-1)).sum(2)
        scores: torch.Tensor = self.score(self.variables(embedded)[0].mean(1)).squeeze(-1)
        return scores


def scores(others: Sequence[Sample], sample: Sample) -> list[float]:
    """Scores of a sample's plans by a network that was trained on the others."""
    torch.manual_seed(SEED)
    draw, ranker = random.Random(SEED), Ranker()  # noqa: S311  # of batches
    optimizer = torch.optim.Adam(ranker.parameters(), lr=RATE)
    known = [(_encoded(each), torch.tensor(each.steps_s)) for each in others]
    for _ in range(EPOCHS):
        for (parts, present), steps_s in draw.sample(known, len(known)):
            chosen = torch.randperm(len(steps_s))[:BATCH]
            found, times = ranker(parts[chosen], present[chosen]), steps_s[chosen]
            slower = times[:, None] > times[None, :]
            loss = nn.functional.softplus(-(found[:, None] - found[None, :]))[slower].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        result: list[float] = ranker(*_encoded(sample)).tolist()
    return result


def _encoded(sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    names = [each.name for each in sample.question.profile.gradients]
    parts = torch.zeros(len(sample.plans), len(names), PARTS_MAX, WIDTH)
    present = torch.zeros(len(sample.plans), len(names), PARTS_MAX)
    for at, plan in enumerate(sample.plans):
        for group, bucket in enumerate(plan.buckets):
            for part in bucket.parts:
                variable = names.index(part.variable)
                place = int(present[at, variable].sum())
                elements = (bucket.elements if part.stop is None else part.stop) - part.start
                parts[at, variable, place] = _part(bucket, group, elements, plan, sample.question.graph)
                present[at, variable, place] = 1.0
    return parts, present


def _part(bucket: Bucket, group: int, elements: int, plan: Plan, graph: Network) -> torch.Tensor:
    found = torch.zeros(WIDTH)
    route = bucket.route
    device = route.owners[0].rank if isinstance(route, Owned) else bucket.order[0]
    found[device % DEVICES] = 1.0
    found[DEVICES + group % GROUPS] = 1.0
    found[DEVICES + GROUPS + CODECS[bucket.codec]] = 1.0
    found[DEVICES + GROUPS + COMPRESSORS + ROUTES[type(route)]] = 1.0
    rates = [graph.bit_per_s(device, other) for other in bucket.order if other != device]
    total = sum(each.elements * ITEM_BYTES[each.dtype] for each in plan.buckets)
    found[-3] = elements * ITEM_BYTES[bucket.dtype] / total
    found[-2] = min(rates, default=1e9) / 1e9
    found[-1] = len(bucket.order) / DEVICES
    return found
