"""One thread a test process: the suite runs two of them, and the models are too small to share out further."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
