"""The GPU check: what parking, gating and sharing cost and do on the NVIDIA GPU of this machine."""
