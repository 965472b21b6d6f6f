"""`python -m benches predict`: accuracy of predicted step times against emulated clusters."""
