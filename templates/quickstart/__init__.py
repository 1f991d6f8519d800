"""The quickstart's files: its answers, its reward, and what makes its model and its data."""
