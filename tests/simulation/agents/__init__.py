"""The agents' machines and the controller's decisions together, in virtual time, with drawn faults."""
