"""Resources of one call: seeds, machine code, workers, checkpoint, clock and progress."""
