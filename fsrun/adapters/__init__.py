"""What runs an evaluation for a claimed entry: the user's function or command, each in a process of its own."""
