"""The training vocabulary: methods, data, rewards, plan, runner, tracking."""
