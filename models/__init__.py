"""The models: one file each, named as the model; the class in it is found by `orthobench.plugins`."""
