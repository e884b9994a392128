"""The result of a decision: actions, Events, conditions, and the steps that build them."""
