"""An entry of a list of papers' runs."""

ENTRY = """
[[runs]]
paper = "helfrich2018"
figure = "2"
models = ["lstm"]
where = { sequence_length = 200 }
"""
