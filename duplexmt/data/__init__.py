"""Sentence pairs: the built-in corpus, tokenisation, batching."""
