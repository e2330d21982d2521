"""Raw parallel corpora to cleaned, disjoint splits of sentence pairs: the paper's "Datasets" section as a library.

`rules` holds the cleaning rules, `reading` and `sources` the file formats, `prepare` the way from files to splits,
`splitting` what is held out, and `report` the account of every line dropped on that way. It knows nothing of models or
tokenizers: a caller brings token counters.
"""
