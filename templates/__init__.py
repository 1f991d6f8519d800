"""What is rendered or copied into a run folder: stage scripts and the quickstart's files."""
