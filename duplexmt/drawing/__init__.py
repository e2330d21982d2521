"""Figures, tables and texts for people, as pure functions of numbers and events."""
