"""Reward functions with the signature of TRL, and how a reward is named."""
