"""The verbs of `hocket bench`, by what they compare."""
