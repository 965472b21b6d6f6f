"""`python -m benches order-search`: how good orders are, and how long they take to find."""
