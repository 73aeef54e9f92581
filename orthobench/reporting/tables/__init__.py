"""Tables as text, Markdown, LaTeX and data."""
