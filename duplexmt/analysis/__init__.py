"""One sentence through the grid, and tokens written too early or too late."""
