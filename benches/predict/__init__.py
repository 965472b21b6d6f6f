"""`python -m benches predict`: how well step times are predicted, against emulated clusters."""
