"""Pools are asked for in the kernels of a real Jupyter server."""

from tests.jupyter import extension, gpu, kernels, own_provisioner_factory  # noqa: F401 fixtures
