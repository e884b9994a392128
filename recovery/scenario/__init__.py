"""The file dialect of chaos: what people write in scenario files, read strictly. It is pure."""
