"""The choice of a start and of the length of rounds: strategies, and the pilots that compare them."""
