"""Reading, recognising and checking training data, without importing anything heavy."""
