"""Figures the project promises, measured: `python -m benchmarks.<name>`."""
