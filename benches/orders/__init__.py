"""`python -m benches orders`: gains from rank order for other libraries and for Hocket's own programs, with latency."""
