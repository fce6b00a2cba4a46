"""What is said of a finished fit, and how it is labelled."""
