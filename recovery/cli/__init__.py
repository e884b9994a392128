"""What people type. Each command is one module; they are imported when they are called, so that help comes at once."""
