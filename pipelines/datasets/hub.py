"""A dataset on the Hugging Face hub as a local folder, fetched by a process of its own.

`python -m pipelines.datasets.hub ORG/NAME` prints one JSON object: {"path"} or {"error", "remedy"}. The
files are read by our own readers (with lines and rows), not through `datasets`, which fills ragged rows
with nulls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pipelines.datasets.errors import DataError

CONNECT_SECONDS = 1.0
PATTERNS = [
    f"*.{suffix}{packed}"
    for suffix in ("jsonl", "ndjson", "json", "csv", "tsv", "parquet", "arrow")
    for packed in ("", ".gz", ".zst")
]


def fetch(name: str) -> Path:
    """The folder of `name`'s data files, from the hub or from its cache; raises DataError with the remedy."""
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.datasets.hub", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        text=True,
    )
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        answer = {"error": f"the hub could not be asked (exit code {done.returncode})"}
    if "path" in answer:
        return Path(answer["path"])
    raise DataError(answer["error"], file=name, remedy=answer.get("remedy"))


def _fetch(name: str) -> dict[str, str]:
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    reachable = False
    if not offline:
        try:
            HfApi().dataset_info(name, timeout=CONNECT_SECONDS)
            reachable = True
        except GatedRepoError:
            return {
                "error": "this dataset is gated",
                "remedy": f"accept its terms on the hub, then set HF_TOKEN ({name})",
            }
        except RepositoryNotFoundError:
            return {"error": "no such file, folder or dataset on the hub", "remedy": "check the name"}
        except HFValidationError as error:
            return {"error": f"not a dataset's name ({error})", "remedy": "give a file, a folder or org/name"}
        except Exception:  # no network, in the many ways that a client can say it
            reachable = False
    try:
        path = snapshot_download(
            name, repo_type="dataset", allow_patterns=PATTERNS, local_files_only=not reachable
        )
    except LocalEntryNotFoundError:
        return {
            "error": "no such file or folder, and the hub cannot be reached",
            "remedy": "give a path, or fetch the dataset on a machine with a network and copy its files",
        }
    return {"path": str(path)}


if __name__ == "__main__":
    json.dump(_fetch(sys.argv[1]), sys.stdout)
