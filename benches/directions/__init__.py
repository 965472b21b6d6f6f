"""All-reduces between hosts whose links are slow in one direction or both: measured and simulated times beside their bound."""
