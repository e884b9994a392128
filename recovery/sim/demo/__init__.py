"""`make demo`: a job of 1,024 GPUs, four incidents and the production controller, all in one process."""
