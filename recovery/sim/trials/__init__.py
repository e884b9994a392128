"""Trials: the production controller runs in a modelled cluster under faults, and invariants judge what it did."""
