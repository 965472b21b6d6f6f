"""Choices of the comparison: models and strategies by name, with texts for people. Loads no framework."""

from __future__ import annotations

from dataclasses import dataclass

WARM_UP_STEPS = 2
"""Number of first steps, which allocate and connect: they train, but are left out of medians and traffic."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Model of the demo. `steps`: enough to learn something, few enough for a demo of four minutes."""

    label: str
    metric_name: str
    steps: int


MODELS = {
    "transformer": Model(
        label="byte-level transformer, 3.3 M parameters, Python's standard library",
        metric_name="bits per byte",
        steps=15,
    ),
    "digits": Model(
        label="CNN, 0.15 M parameters, on scikit-learn's digits", metric_name="accuracy", steps=150
    ),
}


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """Way of training. `script`: its name in the training script; `promise`: Hocket's, if the job is given one; `planned`: with the
    plan that the demo makes with the verbs, else Hocket has nothing but the script's two lines."""

    label: str
    script: str
    promise: str | None = None
    planned: bool = False


STRATEGIES = {
    "ddp": Strategy(label="DDP on Gloo", script="ddp"),
    "ddp-f16": Strategy(label="DDP, f16 hook", script="ddp-f16"),
    "hocket-two-lines": Strategy(label="Hocket, two lines", script="hocket"),
    "hocket-two-lines-rounded": Strategy(
        label="Hocket, two lines, rounded", script="hocket", promise="rounded"
    ),
    "hocket": Strategy(label="Hocket, planned", script="hocket", planned=True),
}
"""Strategies in the order in which they train."""

LEADS = "hocket-two-lines"
"""Strategy with which results begin: a newcomer's."""
