"""What server and clients say to one another, and the Python client (docs/reference/protocol.md)."""
