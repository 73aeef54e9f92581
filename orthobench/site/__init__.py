"""The page on the web: a static site of several databases, and a server on this machine that renews the page."""
