"""The probes: each file has the class of the probe of its name."""
