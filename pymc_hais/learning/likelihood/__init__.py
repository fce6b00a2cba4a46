"""Methods that follow the gradient of the log-likelihood by chains."""
