"""The life of one incident in the ledger: phases, budget, attempt limits, preconditions, invariants."""
