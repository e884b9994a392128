"""What spans groups: quarantined and suspected nodes, caps, the circuit breaker, storms."""
