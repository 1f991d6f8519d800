"""pass@k of the model that the pipeline starts from, on the held-out prompts. Reads config.yaml beside it."""

from pipelines.training.stage import run_probe

if __name__ == "__main__":
    run_probe(__file__)
