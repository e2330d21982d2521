"""Raw parallel corpora to cleaned, disjoint splits of sentence pairs: the paper's "Datasets" section as a library.

`rules` holds the cleaning rules, `reading` and `sources` the file formats, `prepare` the way from files to splits,
`splitting` what is held out, and `report` the account of every line dropped on that way. It knows nothing of models or
tokenizers: a caller brings token counters.
"""

from data_prep.reading import read_pairs
from data_prep.report import Report
from data_prep.rules import clean_side

__all__ = ["Report", "clean_side", "read_pairs"]
