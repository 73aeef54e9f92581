"""Data sets: their folders, downloads, imports and checksums."""
