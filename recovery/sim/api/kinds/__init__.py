"""What the server knows of single kinds: defaults, validation, what it sets itself."""
