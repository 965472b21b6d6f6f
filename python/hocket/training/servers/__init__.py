"""Ranks that do not train: parameter servers and helpers, from both sides."""
