"""`python -m benches orders`: what rank order is worth to other libraries and to Hocket's own programs, where there is latency."""
