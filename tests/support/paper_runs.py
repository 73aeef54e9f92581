"""An entry of a list of papers' runs, for tests of trials."""

TRIAL = """
[[runs]]
paper = "helfrich2018"
figure = "2"
models = ["lstm"]
where = { sequence_length = 200 }
"""
