"""What a decision answers with: actions, Events, conditions, and the steps that put them together."""
