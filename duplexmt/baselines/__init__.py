"""What the grid is compared with (Section VI): wait-k and offline translation by the same backbone, as a plain decoder.

Shape legend, used throughout this package:

    B  pairs in the batch            n  streams decoded side by side
    X  source tokens                 m  tokens appended at once
    Y  target tokens                 L  slots of the cache
    D  hidden size of the backbone
"""
