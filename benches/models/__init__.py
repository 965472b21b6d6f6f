"""`python -m benches models`: what models of known papers move, and when, over parameter servers on an emulated cluster."""
