"""Models from layers of other programs."""
