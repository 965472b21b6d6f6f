"""Contenders, one per file; `contender.py` has their interface, `catalogue.py` lists them."""
