"""Measures all algorithms of collectives on the ranks of a job; the results make up a tuning."""
