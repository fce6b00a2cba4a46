"""The findings: one kind of evidence a file, with the words of each finding beside the test that decides on it."""
