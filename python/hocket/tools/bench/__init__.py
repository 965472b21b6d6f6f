"""Benchmarks, each of which compares in alternation within one run and reports medians, spread and ratios, never bare times."""
