"""Data of a training loop: samples that are each seen once, epochs, learning rates when the number of ranks changes."""
