"""Methods of data-parallel training side by side: loss against wall time, on one network."""
