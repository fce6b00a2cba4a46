"""Arguments, files and results that users pass -> checked values."""
