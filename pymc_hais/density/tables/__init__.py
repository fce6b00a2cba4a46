"""Tables of data: what goes row by row, and equal rows computed once."""
