"""The self-guided policy (Section V-A to V-C) as pure tensor functions: heatmap, best path, EMIT mask, losses."""
