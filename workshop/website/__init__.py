"""The documentation site: pages that are generated from the code, the papers and the results.

`mkdocs.yml` names `hooks.py`, which adds these pages to the documents of `docs/`. The pages are not committed.
"""
