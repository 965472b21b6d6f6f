"""Results of a job's searches for a plan: trials, their predictions, the best so far, and the reason why a search ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hocket.artefacts.change import Change


@dataclass(frozen=True)
class Trial:
    """Candidate that was in force from `step` on.

    Attributes:
        measured_s: step that counts: as long relative to the search's `first_s` as it took relative to the plan in force just
            before, so that a machine that slows down makes no candidate look worse.
        error_s: its standard error, where known.
        kept: True if it proved itself.
        best_s: the best so far, with this one.
    """

    step: int
    label: str
    predicted_s: float | None
    measured_s: float
    error_s: float | None
    kept: bool
    best_s: float


@dataclass
class Search:
    """Search for a plan. `first_s`: a step when it began; `ended`: why it ended, None while it goes on; `last`: the step of its
    end."""

    began: int
    label: str
    first_s: float
    trials: list[Trial] = field(default_factory=list)
    ended: str | None = None
    last: int | None = None

    @property
    def best(self) -> Trial | None:
        """Last trial that was kept; None: nothing was better than the plan that the search began with."""
        return next((each for each in reversed(self.trials) if each.kept), None)

    @property
    def hits(self) -> float | None:
        """Share of the trials that were faster than the plan that the search began with; None without trials."""
        if not self.trials:
            return None
        return sum(each.measured_s < self.first_s for each in self.trials) / len(self.trials)

    @property
    def errors(self) -> list[float]:
        """Relative errors, (predicted - measured) / measured, of each trial that was predicted."""
        return [
            each.predicted_s / each.measured_s - 1 for each in self.trials if each.predicted_s is not None
        ]


def searches(changes: Iterable[Change]) -> list[Search]:
    """Return all searches of a job, in order."""
    found: list[Search] = []
    known_s = 0.0
    on_trial: Change | None = None
    for each in changes:
        now = found[-1] if found and found[-1].ended is None else None
        if each.what == "searching" and each.before_s is not None:
            found.append(Search(each.step, each.label, each.before_s))
            known_s, on_trial = each.before_s, None
        elif now is None:
            continue
        elif each.what == "searched":
            now.ended, now.last = each.why, each.step
        elif each.what == "adopted":
            on_trial = each
        elif on_trial is not None and each.before_s and each.after_s is not None:
            kept, ratio = each.what == "kept", known_s / each.before_s
            measured_s = each.after_s * ratio
            known_s = measured_s if kept else known_s
            now.trials.append(
                Trial(
                    step=on_trial.step,
                    label=on_trial.label,
                    predicted_s=on_trial.predicted_s,
                    measured_s=measured_s,
                    error_s=None if each.error_s is None else each.error_s * ratio,
                    kept=kept,
                    best_s=known_s,
                )
            )
            on_trial = None
    return found
