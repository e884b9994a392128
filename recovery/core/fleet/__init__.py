"""What concerns several groups: quarantined and suspected nodes, caps, the circuit breaker, storms."""
