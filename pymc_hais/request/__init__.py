"""What was asked for, checked, and who computes it."""
