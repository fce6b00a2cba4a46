"""Results without sampling, groups of results, and summaries of them."""
