"""A package of plugins by a stranger to this project, as its documents describe one."""
