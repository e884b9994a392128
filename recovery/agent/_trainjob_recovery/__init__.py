"""The agent that runs in the pods of a training job. Standard library only."""
