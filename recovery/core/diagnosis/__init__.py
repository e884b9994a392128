"""Finds out from the facts what happened: the members, the losses, their class and cause, and who else decides."""
