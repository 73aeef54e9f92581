"""Files: whole writes, folders at URLs, kinds of files, and strict JSON. Nothing here knows the database."""
