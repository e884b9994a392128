"""The command line. Each command is one module, imported when it is called, so that help appears at once."""
