"""Models of the controllers that the real cluster runs beside ours: Job, JobSet, Trainer, scheduler, nodes, garbage."""
