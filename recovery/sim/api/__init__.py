"""An in-memory API server with the semantics of the real one. It runs in one process and answers without delay."""
