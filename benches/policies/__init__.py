"""`python -m benches policies`: the ready-made policies, each against its baseline, on emulated clusters."""
