"""What decides whether a finding applies: one kind of evidence a file; the words stand in ``results/findings.py``."""
