"""Latency and quality metrics of simultaneous translation."""
