"""What makes training and decoding fast and is no idea of the paper: products, norms, LoRA, Triton, memory."""
