"""Several results: whether they may be compared, how likely each model is, tables of them, and draws of all."""
