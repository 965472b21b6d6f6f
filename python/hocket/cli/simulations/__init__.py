"""Subjects of `hocket simulate`: a plan, a trace, or lists of networks and strategies."""
