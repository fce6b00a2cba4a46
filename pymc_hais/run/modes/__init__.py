"""The search for modes after the rounds: climbs, and the masses around the modes that they find."""
