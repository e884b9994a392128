"""Models of the other controllers of a real cluster: Job, JobSet, Trainer, scheduler, nodes, garbage collection."""
