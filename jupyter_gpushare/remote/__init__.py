"""Kernels on other machines: how one is started there as its user, followed, found again, and never left alone."""
