"""Caution of the pilot: how long it looks before it acts, and which differences count."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Caution:
    """Numbers of steps, and ratios of step times."""

    first: int = 5
    """Steps before the first plan is asked for: the profile is made of them."""
    window: int = 8
    """Steps of which the median counts while a plan is watched."""
    trial: int = 5
    """Steps after which a trial may end, and `trial_max` after which it must."""
    trial_max: int = 9
    gain: float = 0.03
    """Share of the step that a plan must promise to save, to be tried."""
    clear: float = 0.05
    """Relative difference beyond which steps are told apart after `trial` of them."""
    drift: float = 1.1
    """Ratio of step times, either way, beyond which a plan counts as drifted, unless noise explains it."""
    errors: float = 5.0
    """Standard errors that the difference must exceed, so that noise does not explain it."""
    doubt: float = 1.3
    """Ratio of step time to prediction beyond which the measurements of the network are in doubt."""
    hopeless: float = 1.5
    """Ratio to the steps before beyond which a trial ends, after three steps that all take this much longer."""
    rest: int = 8
    """Steps without a question to the planner after it found nothing; twice as many each time, up to `rest_max`."""
    rest_max: int = 4096
    search_warm_up: int = 2
    """Steps of a search's trial that do not count, and steps at least, and at most, that do."""
    search_trial: int = 4
    search_trial_max: int = 12
    search_doubt: float = 2.0
    """Standard errors by which steps must be longer than those before to end a search's trial."""
    search_gain: float = 0.01
    """Share of the step that a plan must save in a search's trial, to stay."""
