"""Frozen data, each with a file form: the artefacts that the loop's stages pass on. No behaviour here."""
