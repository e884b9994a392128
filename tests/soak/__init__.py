"""`make soak`: many more trials and walks than `make test` has time for, each drawn by a number."""
