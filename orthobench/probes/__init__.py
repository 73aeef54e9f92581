"""The probes: one file each, named as the probe; the class in it is found by `orthobench.plugins`."""
