"""Decides how gradients travel: one decision per file."""
