"""Progress on terminals and in notebooks."""
