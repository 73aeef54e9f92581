"""What a run is: its settings resolved, its key, and the index of what follows from the code alone."""
