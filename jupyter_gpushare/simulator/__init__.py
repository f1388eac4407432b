"""Replays workloads through the scheduler's own core, and through the policies it is compared with.

`workloads.find(name)` says which engine runs a workload: `arrivals`, `jobs` or `sessions`. Each engine is a module with
``run(...)`` -> metrics by the contract's names; each has its table of policies in `policies/`.
"""
