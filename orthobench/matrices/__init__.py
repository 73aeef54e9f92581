"""How recurrent matrices are parametrised and started: one map a file, knowing nothing of models or tasks."""
