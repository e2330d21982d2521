"""The folder a trained model lives in: saved, loaded, put on a device."""
