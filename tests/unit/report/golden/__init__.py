"""The report of `killed_rank.json` in each format."""
