"""The user's own arrays, tables and folders as tasks: how they are read, named, split and judged."""
