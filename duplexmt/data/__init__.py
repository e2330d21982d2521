"""Sentence pairs: the built-in grammar corpus, tokenisation, batching."""
