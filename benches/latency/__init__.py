"""All-reduces between two sites far from each other, whose trunk loses packets: which share of it jobs without files use."""
