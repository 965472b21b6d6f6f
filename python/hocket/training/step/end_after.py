"""End of a training after so many steps (HOCKET_STEPS_MAX)."""

from __future__ import annotations

from hocket.training.memory.framework import Framework
from hocket.training.step.session import Session


def end_after(steps: int, framework: Framework, session: Session) -> None:
    """End the process after this many steps; gradients made until then are applied."""
    count = 0

    def stepped() -> None:
        nonlocal count
        count += 1
        if count == steps:
            session.flush()
            raise SystemExit(0)

    framework.on_step(stepped)
