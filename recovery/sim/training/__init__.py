"""The training that runs in the pods, and the record of what really happened to it."""
