"""What ranks of `test_wrong_arguments.py` do: calls that are mistaken, one after the other, as in the cells of a notebook."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from torch import nn

import hocket.torch as hk
from hocket.errors import Error
from hocket.policies.top_k import TopK

MISTAKES: tuple[dict[str, Any], ...] = (
    {"model": 3},
    {"optimizer": "SGD"},
    {"optimizer": torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.01)},
    {"plan": "plan.json"},
    {"policy": "topk"},
    {"promise": 3},
    {"search": "soon"},
)


def mistaken() -> list[str]:
    """What is said of each, and of a right call after them: its type, and the first line."""
    return [_said_of(given) for given in (*MISTAKES, {})]


def once_more() -> list[str]:
    """The same of the last mistake, which ranks notice when they have met."""
    return [_said_of(given) for given in (MISTAKES[-1], {})]


def apart() -> list[str]:
    """Arguments that one rank alone gives, and then none."""
    rank = int(os.environ["HOCKET_RANK"])
    ways: list[dict[str, Any]] = [
        {"policy": TopK()} if rank == 0 else {},
        {"promise": "rounded", "buffers": "none"} if rank == 1 else {"promise": "exact"},
        {},
    ]
    return [_said_of(given) for given in ways]


def _said_of(given: dict[str, Any]) -> str:
    model = nn.Linear(3, 2)
    arguments = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01), **given}
    try:
        hk.distribute(arguments.pop("model"), arguments.pop("optimizer"), **arguments)
        model(torch.ones(1, 3)).sum().backward()
    except Error as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "trained"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(mistaken()))
