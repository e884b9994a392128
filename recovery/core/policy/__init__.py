"""The RecoveryPolicy as data: its fields and defaults, what is wrong with one, which one applies to a workload."""
