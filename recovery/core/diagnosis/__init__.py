"""From facts to what happened: who is a member, what was lost, of which class and cause, who else decides on it."""
