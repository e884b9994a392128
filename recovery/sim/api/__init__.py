"""An API server in memory: the semantics of the real one, in one process and at once."""
