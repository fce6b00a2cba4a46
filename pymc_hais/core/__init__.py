"""Arrays only: weights, resampling, noise, and populations annealed by a plan."""
