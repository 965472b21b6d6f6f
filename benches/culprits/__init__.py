"""Jobs of three ranks of which one goes wrong, and whom they blame for it."""
