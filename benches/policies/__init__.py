"""`python -m benches policies`: the ready-made policies against what each is meant to beat, on emulated clusters."""
