"""The RecoveryPolicy as data: its fields and defaults, its validation, and which policy applies to a workload."""
