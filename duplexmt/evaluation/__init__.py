"""From systems and a test set to hypotheses, scores, comparisons and tables."""
