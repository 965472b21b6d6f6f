"""Traces in other tools' formats: one per file, each with `write(trace, path)`. Knows artefacts only."""
