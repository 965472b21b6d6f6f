"""Change by which a job adapted its own plan while it trained: a line of a trace's `changes.jsonl`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

What = Literal[
    "drifted", "looked", "planned", "adopted", "kept", "left", "searching", "searched", "refused", "retreated"
]
"""`drifted`: step times differ from earlier ones, or from predictions. `looked`: the network was measured again.
`planned`: the planner was asked, and its best plan was not worth a change. `adopted`: another plan is in force, on trial.
`kept`: that plan has proved itself. `left`: it has not, and the plan before is in force again. `searching`: a search begins,
whose trials follow as `adopted`, then `kept` or `left`; `searched`: the search has ended, and why. `refused`: the guard did not let
a schedule of the plan pass. `retreated`: training no longer went as before, and a safer schedule is in force."""


class Change(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One event. Times are of a step, medians in seconds.

    `step` is the number of steps that were trained before, `epoch` the one in force afterwards. `label` is the plan that the
    change is about, `why` a sentence for people. `predicted_s` is that plan's predicted time; `before_s` and `after_s` are times
    before the plan and with it, as far as these are known. `error_s`: the standard error of `after_s`, in a search.
    """

    what: What
    step: int
    epoch: int
    label: str
    why: str
    predicted_s: float | None = None
    before_s: float | None = None
    after_s: float | None = None
    error_s: float | None = None
