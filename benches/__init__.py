"""Benchmarks behind docs/results.md: rows with targets, contenders' models, and what only this project's own results need.

`python -m benches` in a checkout runs them; they are no part of what users install. What users run on their own machines is
`hocket bench`.
"""
