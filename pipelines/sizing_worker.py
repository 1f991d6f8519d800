"""One question to a process that imports torch: JSON in, the last line of its output as JSON back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from estimators.errors import BadInput


def ask_worker(
    module: str, question: Any, environment: Mapping[str, str], timeout: int, what: str, remedy: str
) -> Any:
    """What `python -m module` answers to `question`, under this environment and `environment`, offline.

    Raises: BadInput where it does not answer within `timeout` seconds or fails; `what` names it, such as "the
        trace", and `remedy` says what to do where it takes too long.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", module],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"{what} took more than {timeout} s; {remedy}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BadInput(f"{what} did not run: {last}")
    return json.loads(done.stdout.splitlines()[-1])
