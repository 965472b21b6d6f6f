"""`python -m benches frameworks`: JAX with Hocket beside JAX's own collectives, and the cost of the adapter itself."""
