"""All-reduces of ranks of which one comes late: measured and simulated times beside their bound."""
