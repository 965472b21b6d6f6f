"""Traces in other tools' formats: one per file, each with `write(trace, path)`. They know artefacts only."""
