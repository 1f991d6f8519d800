"""The sandbox of `code_reward`: throughput against a cold `python -I` per test, and what 10,000 runs leave
behind.

python benchmarks/rewards_code.py throughput     paired rounds in one process, stdin tests and assert tests
python benchmarks/rewards_code.py leaks [RUNS [MODE]]   memory, descriptors, processes and temporary files,
before and after

The cold side has no isolation at all, so the comparison is to its advantage.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pipelines.rewards import code_reward
from pipelines.rewards.coding.pool import POOL

SCRIPT = "import sys\na, b = map(int, sys.stdin.read().split())\nprint(a + b)\n"
FUNCTION = "def add(a, b):\n    return a + b\n"
ASSERTS = ["assert add(1, 2) == 3", "assert add(-5, 5) == 0", "assert add(10**12, 1) == 1000000000001"]
STDIN = [("3 4\n", "7\n"), ("-10 10\n", "0\n"), ("1 1\n", "2\n")]
ROUNDS = 7
ROWS = 24
"""Completions per round, of three tests each."""


def cold_scripts() -> None:
    for _ in range(ROWS):
        for given, wanted in STDIN:
            run = subprocess.run(
                [sys.executable, "-I", "-c", SCRIPT], input=given.encode(), stdout=subprocess.PIPE
            )
            assert run.stdout.decode() == wanted


def cold_asserts() -> None:
    for _ in range(ROWS):
        for test in ASSERTS:
            assert subprocess.run([sys.executable, "-I", "-c", FUNCTION + test]).returncode == 0


def warm_scripts() -> None:
    tests = [{"stdin": given, "stdout": wanted} for given, wanted in STDIN]
    assert code_reward([f"```python\n{SCRIPT}```"] * ROWS, tests=[tests] * ROWS) == [1.0] * ROWS


def warm_asserts() -> None:
    tests = [{"code": code} for code in ASSERTS]
    found = code_reward([f"```python\n{FUNCTION}```"] * ROWS, tests=[tests] * ROWS, entry_point="add")
    assert found == [1.0] * ROWS


def seconds(function: object) -> float:
    start = time.perf_counter()
    function()  # type: ignore[operator]
    return time.perf_counter() - start


def throughput() -> None:
    """Tests per second on both sides and the ratio, round by round."""
    warm_scripts(), warm_asserts()
    print(f"mode {POOL.mode}, {POOL.size} keepers, load {os.getloadavg()[0]:.1f}")
    for name, cold, warm in (("stdin", cold_scripts, warm_scripts), ("asserts", cold_asserts, warm_asserts)):
        ratios = []
        for _ in range(ROUNDS):
            slow, fast = seconds(cold), seconds(warm)
            ratios.append(slow / fast)
        tests = 3 * ROWS
        print(
            f"{name}: cold {tests / slow:.0f} tests/s, warm {tests / fast:.0f} tests/s in the last round; "
            f"ratios {', '.join(f'{r:.1f}' for r in ratios)}; median {statistics.median(ratios):.1f}"
        )


def state() -> dict[str, int]:
    """What must not grow: kB of this process and of the keepers, descriptors, processes, temporary files,
    mounts.
    """
    tree = _tree()
    return {
        "trainer_kb": _resident_kb(os.getpid()),
        "keepers_kb": sum(_resident_kb(pid) for pid in tree),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "keeper_descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in tree),
        "processes": len(tree),
        "temporary": sum(name.startswith("advisor-") for name in os.listdir(tempfile.gettempdir())),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
    }


def _tree() -> list[int]:
    """The pids of all descendants, without the spares that a keeper forks ahead."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(name))
    found, todo = [], [(os.getpid(), 0)]
    while todo:
        pid, depth = todo.pop()
        for child in children.get(pid, []):
            if depth < 2:
                found.append(child)
                todo.append((child, depth + 1))
    return found


def _resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def leaks(runs: int, mode: str | None) -> None:
    """`runs` sandboxed runs in a row, honest, failing and hostile in turn."""
    POOL.mode = mode
    fork = "import os\ndef add(a, b):\n    if os.fork() == 0:\n        os.setsid(), os.fork()\n    return 0\n"
    write = (
        "def add(a, b):\n    open('x', 'w').write('x' * 1000)\n    open('/tmp/y', 'w')\n    return a + b\n"
    )
    programs = [
        FUNCTION,
        "def add(a, b):\n    return 0\n",
        fork,
        write,
        "import os\nos._exit(0)\n",
        "raise SystemExit",
    ]
    tests = [{"code": code} for code in ASSERTS]

    def batch(count: int) -> None:
        chosen = [f"```python\n{programs[k % len(programs)]}```" for k in range(count)]
        code_reward(chosen, tests=[tests] * count, entry_point="add")

    batch(300)
    gc.collect()
    before = state()
    start = time.perf_counter()
    for _ in range(runs // 100):
        batch(100)
    gc.collect()
    after = state()
    print(f"{runs} runs in {time.perf_counter() - start:.0f} s, mode {POOL.mode}, {POOL.size} keepers")
    for name, value in before.items():
        print(f"{name:20s} before {value:8d}  after {after[name]:8d}")
    zombies = sum(")" in t and t.rsplit(")", 1)[1].split()[0] == "Z" for t in _stats())
    print(f"zombies {zombies}")


def _stats() -> list[str]:
    found = []
    for pid in _tree():
        try:
            found.append(Path(f"/proc/{pid}/stat").read_text())
        except OSError:
            continue
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["leaks"]:
        leaks(int(sys.argv[2]) if len(sys.argv) > 2 else 10_000, sys.argv[3] if len(sys.argv) > 3 else None)
    else:
        throughput()
