"""All-reduces between two sites far from each other, whose trunk loses packets: the share of the trunk that jobs without files use."""
