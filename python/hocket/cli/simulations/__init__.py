"""Verbs of `hocket simulate`: a plan, a trace, or a sweep over networks and strategies."""
