"""Where to start, and how long rounds must be: strategies, and the pilots that compare them."""
