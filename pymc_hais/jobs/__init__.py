"""Where and when jobs are done, and what is kept of them."""
