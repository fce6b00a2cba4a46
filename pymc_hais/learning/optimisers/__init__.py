"""How parameters move along gradients, and where they may be."""
