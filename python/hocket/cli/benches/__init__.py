"""Verbs of `hocket bench`, by the subject of comparison."""
