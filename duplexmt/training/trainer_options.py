"""The options of a training and their rules, which the schema of `conf/` has, too; no torch."""

ROUND, PACKED = 128, 8192  # tokens: packed lists are multiples of the one, and as long as the other by default on CUDA
# Under another strategy no model could be looked at, or saved: its processes hand none back, or checkpoints scatter it.
STRATEGIES = ("auto", "ddp", "fsdp", "deepspeed", "deepspeed_stage_1", "deepspeed_stage_2")
# Trained weights stay in float32; the last three are Lightning's aliases.
PRECISIONS = ("auto", "32", "16-mixed", "bf16-mixed", "32-true", "16", "bf16")
