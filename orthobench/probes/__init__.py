"""The probes, one per file; the file has the probe's name and contains its class."""
