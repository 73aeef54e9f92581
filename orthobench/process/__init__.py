"""The process: the signals that stop it, and output that outlives its reader and has no control characters."""
