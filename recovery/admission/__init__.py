"""Validates policies and the RecoveryConfig beyond their schema: when they are written, and in their status. Where the
platform has installed it, also reports what `recovery lint` finds in TrainJobs and their runtimes.

Only this package knows kopf, which serves the webhooks in a thread and an event loop of its own. The controller works
the same without it: if anything fails here, objects are admitted unchecked.
"""
