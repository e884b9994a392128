"""The server's rules for each kind: defaults, validation, and the fields that the server sets itself."""
