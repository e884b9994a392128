"""What the reports of many jobs cost the controller, and how soon a new leader knows all jobs."""
