"""Normal fields that a model holds: found in its graph, integrated out or moved along."""
