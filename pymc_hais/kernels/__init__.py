"""One transition each, pure: a function of one particle."""
