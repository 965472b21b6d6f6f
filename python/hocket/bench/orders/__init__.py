"""`hocket bench order`: how good orders are, and how long they take to find."""
