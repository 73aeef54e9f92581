"""The report on the web: a static site of several databases, and a local server that updates the page."""
