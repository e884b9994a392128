"""What would happen to a job today if a pod, all ranks or a node were lost, and which line of it to change."""
