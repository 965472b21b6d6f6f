"""`python -m tests.meetings SEED`: what happens in the simulated job of that seed, and what was wrong with it."""

from __future__ import annotations

import logging
import sys

from tests.meetings.course import Course

logging.basicConfig(level=logging.INFO, format="%(message)s")
wrong = Course(int(sys.argv[1])).run()
print("\n".join(wrong))  # noqa: T201  # what it is run for
sys.exit(bool(wrong))
