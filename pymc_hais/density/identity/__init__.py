"""Whether a model is still, or again, the one that something is known of."""
