"""The reward for model-written programs: extract, run in the sandbox, believe only what the program cannot
forge.
"""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Sequence
from typing import Any

from pipelines.rewards.coding.extract import program_in
from pipelines.rewards.coding.pool import POOL
from pipelines.rewards.coding.specs import StdinTest, UnusableTests, read_tests
from pipelines.rewards.text import completion_text, per_completion, warn_once

DEFAULT_LIMIT_S = 6.0
"""Wall clock of one stdin test, and of all asserts of a row together."""

MAX_LIMIT_S = 300.0


def score(
    completions: Sequence[Any], tests: Sequence[Any], entry_point: Any = None, timeout_s: Any = None
) -> list[float | None]:
    """One reward per completion, as described in `pipelines.rewards.code_reward`."""
    count = len(completions)
    rows = list(
        zip(
            [completion_text(c) for c in completions],
            per_completion(tests, count, "tests"),
            per_completion(entry_point, count, "entry_point"),
            per_completion(timeout_s, count, "timeout_s"),
            strict=True,
        )
    )
    if len(rows) == 1:
        return [score_one(*rows[0])]
    with concurrent.futures.ThreadPoolExecutor(POOL.size) as threads:
        return list(threads.map(lambda row: score_one(*row), rows))


def score_one(completion: str, tests: Any, entry_point: str | None, timeout_s: float | None) -> float | None:
    """1.0 where the program passes every test, 0.0 where not, None where the tests cannot be used."""
    entry_point = entry_point or None
    try:
        wanted = read_tests(tests, entry_point)
    except UnusableTests as error:
        warn_once(
            f"code:{tests!r:.200}",
            f"code_reward: {error}; such rows are not scored (None). A test is {{'code': ...}}, "
            "{'stdin': ..., 'stdout': ...} or {'args': [...], 'returns': ...}",
        )
        return None
    limit_s = _limit(timeout_s)
    program = program_in(completion, entry_point)
    if program is None:
        return 0.0
    source = program.encode("utf-8", errors="replace")
    if wanted.checks:
        questions = json.dumps({"entry_point": entry_point, "tests": wanted.checks}).encode()
        if POOL.asserts(source, questions, limit_s).get("passed") is not True:
            return 0.0
    return 1.0 if all(_prints(source, test, limit_s) for test in wanted.stdin) else 0.0


def _limit(timeout_s: Any) -> float:
    if (
        isinstance(timeout_s, int | float)
        and not isinstance(timeout_s, bool)
        and 0 < timeout_s <= MAX_LIMIT_S
    ):
        return float(timeout_s)
    return DEFAULT_LIMIT_S


def _prints(source: bytes, test: StdinTest, limit_s: float) -> bool:
    """Whether the program reads `stdin`, ends well, and prints `stdout`: line by line, white space at line
    ends aside.
    """
    wanted = test.stdout.encode("utf-8", errors="surrogatepass")
    result = POOL.script(
        source, test.stdin.encode("utf-8", errors="surrogatepass"), limit_s, 2 * len(wanted) + 65536
    )
    return result.complete and result.status == 0 and _lines(result.stdout) == _lines(wanted)


def _lines(output: bytes) -> list[bytes]:
    lines = [line.rstrip() for line in output.replace(b"\r\n", b"\n").split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines
