"""How long 128 pods with the agent are down, beside JobSet's own restart and a new group without the agent."""
