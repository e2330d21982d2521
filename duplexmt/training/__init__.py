"""Training with Lightning: the LightningModule, the LightningDataModule, and what happens around them."""
