"""`python -m benches frameworks`: JAX with Hocket beside JAX's own collectives, and what the adapter itself costs."""
