"""Says of policies and of the RecoveryConfig what no schema can say: when they are written, and in their status; and of
TrainJobs and their runtimes what `recovery lint` says, where the platform has that installed.

The only package that knows kopf, which serves the webhooks in a thread and an event loop of its own. The controller
works the same without it: whatever goes wrong here, objects are admitted unchecked.
"""
