"""Replays workloads through the scheduler's own core, and through the policies it is compared with.

`workloads.find(name)` says which engine runs a workload: `packing`, `jobs` or `sessions`. Each engine is a module whose
``run(...)`` gives metrics by the contract's names; its policies are in `policies/`.
"""
