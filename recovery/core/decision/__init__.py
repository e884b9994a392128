"""decide(snapshot, ledger, policy, now) -> Plan, and the decisions that it is made of."""
