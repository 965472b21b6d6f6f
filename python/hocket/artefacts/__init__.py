"""Frozen data with a file form each: what stages of the loop hand to one another. No behaviour here."""
