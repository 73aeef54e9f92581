"""The models, one per file; `orthobench.plugins` finds the class in the file that has the model's name."""
