"""Execute runs: a single run, or a session that plans many runs and has an executor train them."""
