"""Kept weights: safetensors files with the canonical form of their run, their place, and their records."""
