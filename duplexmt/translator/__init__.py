"""What a program uses of a trained model: texts and live streams, on any number of threads (docs/reference/api.md)."""
