"""What the controller says about drills: which failures it takes for one, and how a drill ended. Pure."""
