"""How runs train, as one record, and the checks of arguments."""
