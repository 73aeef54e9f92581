"""The tasks: one file each, named as the task; the class in it is found by `orthobench.plugins`."""
