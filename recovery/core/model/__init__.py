"""The data that decisions read and write: facts, ledgers, configuration, rules. Frozen records without logic."""
