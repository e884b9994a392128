"""The life of one incident in the ledger: phases, budget, limits of attempts, preconditions, invariants."""
