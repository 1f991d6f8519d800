"""Training methods, one module per trainer family."""
