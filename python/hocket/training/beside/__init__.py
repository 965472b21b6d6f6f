"""Threads beside training: timers of policies, and the spans of a trace."""
