"""The Jupyter server's side: how kernels get their place, and the doors through which people and kernels ask."""
