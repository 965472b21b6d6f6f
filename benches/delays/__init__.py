"""What merged and late gradients gain, by coverage rate."""
