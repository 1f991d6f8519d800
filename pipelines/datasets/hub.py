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
import threading
import urllib.error
import urllib.request
from functools import lru_cache
from pathlib import Path

from pipelines.datasets.errors import DataError

ANSWER_SECONDS = 1.0
PATTERNS = [
    f"*.{suffix}{packed}"
    for suffix in ("jsonl", "ndjson", "json", "csv", "tsv", "parquet", "arrow")
    for packed in ("", ".gz", ".zst")
]


def fetch(name: str) -> Path:
    """The folder of `name`'s data files, from the hub or from its cache; raises DataError with the remedy.

    Asked for once in a process and place: a check reads a source several times.
    """
    return _fetch_once(name, os.environ.get("HF_ENDPOINT"), str(_cache_of(name)))


@lru_cache(maxsize=64)
def _fetch_once(name: str, endpoint: str | None, cache: str) -> Path:
    reachable = not _offline() and _answers(name)
    if not reachable and not _cache_of(name).is_dir():
        raise DataError(
            "no such file or folder, and the hub cannot be reached",
            file=name,
            remedy="give a path, or fetch the dataset on a machine with a network and copy its files",
        )
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.datasets.hub", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        text=True,
        env=os.environ if reachable else {**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        answer = {"error": f"the hub could not be asked (exit code {done.returncode})"}
    if "path" in answer:
        return Path(answer["path"])
    raise DataError(answer["error"], file=name, remedy=answer.get("remedy"))


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def _cache_of(name: str) -> Path:
    """Where the hub's client keeps a dataset."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    return cache / f"datasets--{name.replace('/', '--')}"


def _answers(name: str) -> bool:
    """Does the hub answer for this name within a second, whatever it says?

    A thread asks, since looking up the host's address can hang beyond any time limit of the request.
    """
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    found: list[bool] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(f"{endpoint}/api/datasets/{name}", timeout=ANSWER_SECONDS):
                found.append(True)
        except urllib.error.HTTPError as error:
            with error:
                # the hub itself says why it refuses; a proxy that lets nothing through says only that it does
                found.append(error.headers.get("X-Error-Code") is not None or error.code in (401, 404))
        except (OSError, ValueError):
            found.append(False)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return found == [True]


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

    try:
        if not _offline():
            HfApi().dataset_info(name)
    except GatedRepoError:
        return {"error": "this dataset is gated", "remedy": "accept its terms on the hub, then set HF_TOKEN"}
    except RepositoryNotFoundError:
        return {"error": "no such file, folder or dataset on the hub", "remedy": "check the name"}
    except HFValidationError:
        return {"error": "not the name of a dataset", "remedy": "give a file, a folder or org/name"}
    except Exception as error:  # the hub's trouble, in the many ways that a client can say it
        return {
            "error": f"the hub does not answer ({type(error).__name__})",
            "remedy": "try again, or give a path",
        }
    try:
        path = snapshot_download(
            name, repo_type="dataset", allow_patterns=PATTERNS, local_files_only=_offline()
        )
    except LocalEntryNotFoundError:
        return {
            "error": "no such file or folder, and the hub cannot be reached",
            "remedy": "give a path, or fetch the dataset on a machine with a network and copy its files",
        }
    return {"path": str(path)}


if __name__ == "__main__":
    json.dump(_fetch(sys.argv[1]), sys.stdout)
