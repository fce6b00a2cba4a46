"""Methods of learning without chains, one a file; each names the paper it follows and what it assumes."""
