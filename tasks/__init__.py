"""The tasks, one per file; `orthobench.plugins` finds the class in the file that has the task's name."""
