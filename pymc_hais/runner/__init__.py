"""Who computes: seeds, machine code, workers, checkpoint, clock and progress of one call."""
