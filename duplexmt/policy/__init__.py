"""The self-guided policy (Section V-A to V-C): loss heatmap, best monotone path, EMIT mask, losses. Pure tensor functions."""
