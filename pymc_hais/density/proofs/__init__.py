"""What is proven of a density from its graph."""
