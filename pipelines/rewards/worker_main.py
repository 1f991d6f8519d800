"""The program of one worker: reads a JSON job per line from stdin, answers a JSON line, under hard limits.

Run by `pipelines.rewards.workers` as `python -I worker_main.py MEMORY_BYTES`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

LIBRARIES = {"json_schema": "jsonschema", "reasoning_gym": "reasoning_gym"}
"""What a kind of job needs, imported when the first such job comes."""


def import_for(job: dict[str, Any], answers: Any) -> None:
    """Import what a job needs, and say so before and after: the parent's clock then starts anew."""
    name = LIBRARIES.get(job["kind"])
    if job["kind"] == "math" and "math_verify" not in sys.modules:
        from pipelines.rewards.maths.engine import needs_math_verify

        name = "math_verify" if needs_math_verify(job["gold"]) else None
    if name is not None and name not in sys.modules:
        answers.write(b'"importing"\n')
        __import__(name)
        answers.write(b'"imported"\n')


def handle(job: dict[str, Any]) -> Any:
    """The answer to one job."""
    if job["kind"] == "math":
        from pipelines.rewards.maths.engine import judge

        verdict = judge(job["gold"], job["pred"])
        return "unusable gold" if verdict is None else verdict
    if job["kind"] == "json_schema":
        from pipelines.rewards.structured import judge_here

        return judge_here(job)
    if job["kind"] == "reasoning_gym":
        from pipelines.rewards.reasoning_gym_scoring import score_here

        return score_here(job)
    if job["kind"] == "hang":  # the two failures that the tests provoke
        time.sleep(3600)
    if job["kind"] == "allocate":
        return len(bytearray(1 << 34))
    raise ValueError(job["kind"])


def main() -> None:
    """Answer jobs until stdin closes, that is, until the parent is gone."""
    memory_bytes = int(sys.argv[1])
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    sys.setrecursionlimit(3000)
    from pipelines.rewards.maths import engine  # noqa: F401  (imported before the clock of the first job starts)

    with contextlib.suppress(ValueError, OSError):  # macOS has no such limit; the wall clock holds everywhere
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers.write(b'"ready"\n')
    for line in sys.stdin.buffer:
        job = json.loads(line)
        import_for(job, answers)
        # the parent's clock ends a hang; this one does where the parent has died meanwhile (default action:
        # die)
        signal.setitimer(signal.ITIMER_REAL, 2 * job["limit_s"] + 1)
        try:
            answer = handle(job)
        except (MemoryError, RecursionError):
            answer = None
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
