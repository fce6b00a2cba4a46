"""Where to start, and how long rounds must be: pilots, and what they say of the candidates."""
