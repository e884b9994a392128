"""decide(snapshot, ledger, policy, now) -> Plan, and what it asks on the way."""
