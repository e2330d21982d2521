"""The 2D grid model (Sections III and IV of the paper): attention, and the model over a Hugging Face decoder.

Shape legend, used throughout this package:

    B  pairs in the batch            D  hidden size of the backbone
    X  source tokens (rows)          H  query heads
    Y  target tokens (columns)       K  key/value heads; G = H // K query heads share one
    T  keys, where a stream is generic   E  size of one head (the paper's H_d)
"""
