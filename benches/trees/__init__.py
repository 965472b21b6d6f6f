"""All-reduces by trees on networks of accelerators, by simulation."""
