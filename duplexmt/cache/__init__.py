"""The incremental caches of live streams (Sections V-D and V-E), and their steps."""
