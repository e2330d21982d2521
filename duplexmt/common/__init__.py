"""What any room may use, and `data_prep` too: files written whole, locks, cores, command lines, bytes and text."""
