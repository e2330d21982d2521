"""Any Hugging Face decoder over packed streams: who sees whom, attention by that rule, the model and its two heads.

Shape legend, used throughout this package:

    B  pairs in the batch            T  tokens of the packed list, `[source; row; row; …]` pair after pair
    X  source tokens of a pair       D  hidden size of the backbone
    Y  target tokens of a row        H  query heads; K  key/value heads, each shared by G = H / K of them
    E  size of one head
"""
