"""Kept weights: safetensors files with their run's canonical settings, their place, and their records."""
