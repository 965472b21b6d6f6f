"""What the tests of replays have in common."""

STEPS = 4
"""Of the run in virtual time that `trace` gives."""
