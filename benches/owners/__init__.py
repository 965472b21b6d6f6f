"""`python -m benches owners`: buckets whose owners alone update them, against the same buckets that all ranks update."""
