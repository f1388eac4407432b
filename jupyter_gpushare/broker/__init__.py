"""The cluster's state, one decision loop, the ledger, and what each user may see."""
