"""Simultaneous decoding: systems behind one protocol that yields read and write events."""
