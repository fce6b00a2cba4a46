"""Steps of parameters along gradients, and constraints of parameters."""
