"""A pool of killable worker processes: a check that hangs costs one check, not the pool.

Each worker runs `worker_main.py`, reads one JSON line per job and answers one JSON line. A job that is not
answered within its wall-clock limit, or whose worker dies (memory limit, crash), is answered here with None,
and the worker is replaced. Works from any thread, and in a forked child (`num_proc` map workers): a child
drops its parent's workers and starts its own.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MAX_OUTSTANDING_BYTES = 32_000
START_LIMIT_S = 60.0
IMPORTING = "importing"


def cores() -> int:
    """The processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Worker:
    """One worker process and the pipes to it."""

    def __init__(self, memory_bytes: int) -> None:
        script = Path(__file__).with_name("worker_main.py")
        env = {
            k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")
        }
        env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(script), str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd="/",
        )
        self.pending = b""

    def send(self, lines: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(lines)
        while view:
            view = view[os.write(self.process.stdin.fileno(), view) :]

    def receive(self, limit_s: float) -> Any:
        """The next answer; TimeoutError after `limit_s`, EOFError where the worker has died."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + limit_s
        while b"\n" not in self.pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                raise EOFError
            self.pending += piece
        line, _, self.pending = self.pending.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """Kill it and reap it."""
        with contextlib.suppress(OSError):
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.process.wait()

    def forget(self) -> None:
        """Let go of a worker that belongs to the parent of this forked process."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.process.returncode = 0  # not our child: nothing to wait for, nothing to warn about


class WorkerPool:
    """At most `size` workers, started when first needed; `run` blocks its thread until its jobs are
    answered.
    """

    def __init__(self, size: int | None = None, memory_bytes: int = 2 << 30) -> None:
        self.size = size or min(4, cores())
        self.memory_bytes = memory_bytes
        self._condition = threading.Condition()
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._after_fork)

    def run(self, jobs: Sequence[dict[str, Any]], limit_s: float) -> list[Any]:
        """The answer to each job, in order; None for a job that hung, crashed or ran out of memory."""
        answers: list[Any] = [None] * len(jobs)
        lines = [json.dumps({**job, "limit_s": limit_s}).encode() + b"\n" for job in jobs]
        worker: Worker | None = None
        next_job = 0
        try:
            while next_job < len(jobs):
                if worker is None:
                    worker = self._acquire()
                try:
                    for index, answer in self._serve(worker, lines, next_job, limit_s):
                        answers[index] = answer
                        next_job = index + 1
                except (TimeoutError, EOFError, OSError, ValueError):
                    next_job += 1  # the job in hand is lost, and its worker with it
                    self._discard(worker)
                    worker = None
        finally:
            if worker is not None:
                if next_job == len(jobs):
                    self._release(worker)
                else:  # an exception such as KeyboardInterrupt left answers in the pipe
                    self._discard(worker)
        return answers

    @staticmethod
    def _serve(worker: Worker, lines: list[bytes], start: int, limit_s: float) -> Any:
        """Yield (index, answer) from job `start` on, keeping a bounded number of bytes in flight."""
        sent, in_flight = start, 0
        for index in range(start, len(lines)):
            while sent < len(lines) and (
                sent == index or in_flight + len(lines[sent]) < MAX_OUTSTANDING_BYTES
            ):
                worker.send(lines[sent])
                in_flight += len(lines[sent])
                sent += 1
            answer = worker.receive(limit_s)
            if answer == IMPORTING:  # a library's first import is not part of any check's limit
                worker.receive(START_LIMIT_S)
                answer = worker.receive(limit_s)
            in_flight -= len(lines[index])
            yield index, answer

    def _acquire(self) -> Worker:
        with self._condition:
            while not self._idle and len(self._busy) >= self.size:
                self._condition.wait()
            if self._idle:
                worker = self._idle.pop()
            else:
                worker = Worker(self.memory_bytes)
                try:
                    worker.receive(
                        START_LIMIT_S
                    )  # its word that the imports are done: not part of any job's limit
                except (EOFError, TimeoutError):
                    worker.close()
                    raise RuntimeError(
                        f"a reward worker did not start; see why with: {sys.executable} -I "
                        f"{Path(__file__).with_name('worker_main.py')} {self.memory_bytes}"
                    ) from None
                except BaseException:
                    worker.close()
                    raise
            self._busy.add(worker)
            return worker

    def _release(self, worker: Worker) -> None:
        with self._condition:
            self._busy.discard(worker)
            self._idle.append(worker)
            self._condition.notify()

    def _discard(self, worker: Worker) -> None:
        worker.close()
        with self._condition:
            self._busy.discard(worker)
            self._condition.notify()

    def close(self) -> None:
        """Kill all workers; the pool starts new ones when it is used again."""
        with self._condition:
            for worker in [*self._idle, *self._busy]:
                worker.close()
            self._idle.clear()
            self._busy.clear()

    def _after_fork(self) -> None:
        for worker in [*self._idle, *self._busy]:
            worker.forget()
        self._condition = threading.Condition()
        self._idle, self._busy = [], set()


POOL = WorkerPool()
"""The pool that the built-in rewards share."""
