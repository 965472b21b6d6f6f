"""`hocket bench order-search`: how good orders are, and how long they take to find."""
