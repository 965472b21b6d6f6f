"""Verbs of `hocket bench`, by what they compare."""
