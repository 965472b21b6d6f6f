"""Jobs of three ranks with one failing rank, and the rank that they blame."""
