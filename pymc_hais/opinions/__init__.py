"""Other estimates of log Z, from other methods."""
