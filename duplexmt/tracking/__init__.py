"""What W&B is given, and its dashboard."""
