"""Trials: the production controller in a modelled cluster under faults, and what must have held at the end."""
