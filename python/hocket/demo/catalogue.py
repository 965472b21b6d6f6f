"""The choices of the comparison: models and strategies by name, with texts for people. Loads no framework."""

from __future__ import annotations

from dataclasses import dataclass

WARM_UP_STEPS = 2
"""First steps allocate and connect: they train, but are left out of medians and traffic."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model of the demo. `steps`: enough to learn something, few enough for a demo of five minutes."""

    label: str
    metric_name: str
    steps: int


MODELS = {
    "transformer": Model(
        label="byte-level transformer, 3.3 M parameters, Python's standard library",
        metric_name="bits per byte",
        steps=25,
    ),
    "digits": Model(
        label="CNN, 0.15 M parameters, on scikit-learn's digits", metric_name="accuracy", steps=150
    ),
}

STRATEGIES = {
    "ddp": "DDP on Gloo",
    "ddp-f16": "DDP, f16 hook",
    "hocket": "Hocket",
}
"""Labels, in the order in which they train."""
