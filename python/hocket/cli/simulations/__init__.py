"""What `hocket simulate` simulates: a plan, a trace, or lists of networks and strategies."""
