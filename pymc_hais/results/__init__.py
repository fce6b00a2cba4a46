"""Numbers -> findings, messages and labelled arrays."""
