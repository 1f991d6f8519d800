"""Whether a completion reaches the gold answer of a mathematics problem."""
