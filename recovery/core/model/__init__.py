"""What is known and what is remembered: facts, ledgers, configuration, rules. Frozen records that decide nothing."""
