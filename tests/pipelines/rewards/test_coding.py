"""`code_reward` on the shared rows, on our own attacks and honest programs, and what a run leaves behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.errors import BadInput
from pipelines.rewards import code_reward
from pipelines.rewards.coding import pool as pools
from pipelines.rewards.coding import reward as rewarding
from pipelines.rewards.coding.extract import program_in
from pipelines.rewards.coding.pool import POOL, SandboxPool

CASES = Path(__file__).parents[2] / "cases"
ADD = "```python\ndef add(a, b):\n    return a + b\n```"
ADD_TESTS = [{"code": "assert add(1, 2) == 3"}]


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]


def verdicts(cases: list[dict]) -> list[float | None]:
    return code_reward(
        [row["completion"] for row in cases],
        tests=[row["tests"] for row in cases],
        entry_point=[row["entry_point"] for row in cases],
        timeout_s=[row["timeout_s"] for row in cases],
    )


@pytest.fixture(params=pools.MODES)
def mode(request, monkeypatch, tmp_path):
    """Both ways to lock a program up; skipped where this machine offers only one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pool = SandboxPool(size=2, mode=request.param)
    try:
        pool.script(b"pass", b"", 10, 1000)
    except BadInput as error:
        pytest.skip(str(error))
    monkeypatch.setattr(rewarding, "POOL", pool)
    yield request.param
    pool.close()


def test_shared_rows(mode, monkeypatch):
    """All 74 in both modes, and none of the forbidden side effects."""
    monkeypatch.setenv("HF_TOKEN", "secret")
    marker = Path("~/.pt_escape_marker").expanduser()
    cases = rows("code.jsonl")
    wrong = [
        r["id"] for r, v in zip(cases, verdicts(cases), strict=True) if (v == 1.0) is not r["expected_pass"]
    ]
    assert wrong == []
    assert not marker.exists()


def test_own_variants(mode):
    """Honest programs of many shapes pass; every attack, and every wrong program, fails."""
    cases = rows("code_variants.jsonl")
    if mode == "landlock":  # POSIX semaphores need a /dev/shm of one's own
        cases = [row for row in cases if row["name"] != "multiprocessing"]
    wrong = [
        r["name"] for r, v in zip(cases, verdicts(cases), strict=True) if (v == 1.0) is not r["expected_pass"]
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", ["list", "json", "messages"])
def test_forms_of_rows(kind):
    tests = json.dumps(ADD_TESTS) if kind == "json" else ADD_TESTS
    completion = [{"role": "assistant", "content": ADD}] if kind == "messages" else ADD
    assert code_reward([completion], tests=[tests], entry_point=["add"]) == [1.0]


@pytest.mark.parametrize(
    "tests",
    [
        [],
        None,
        "",
        "not python (",
        [{"code": "assert ("}],
        [{"code": ""}],
        [{"stdin": "x"}],
        [7],
        [{"args": [1], "returns": 1}],
    ],
)
def test_unusable_tests_are_none(tests):
    assert code_reward([ADD], tests=[tests], entry_point=None) == [None]


def test_spellings_of_tests():
    program = "```python\nprint(int(input()) + 1)\n```"
    assert code_reward([program], tests=[{"inputs": ["1", "2"], "outputs": ["2", "3\n"]}]) == [1.0]
    assert code_reward([program], tests=[[{"input": "1", "output": "2"}]]) == [1.0]
    assert code_reward([ADD], tests=[["assert add(1, 1) == 2", "assert add(0, 0) == 0"]]) == [1.0]


def test_refuses_where_nothing_strong_can_be_had(monkeypatch):
    """Never a plain process: without a jail there is an error that says what to do."""
    monkeypatch.setattr(pools, "MODES", ("no such mode",))
    pool = SandboxPool(size=1)
    with pytest.raises(BadInput, match="only run in a strong sandbox"):
        pool.script(b"pass", b"", 5, 100)


def test_a_leaking_sandbox_is_refused(monkeypatch):
    """The self-test is what decides, not the fact that the set-up raised no error."""
    monkeypatch.setattr(pools, "SELF_TEST", b"print('leaks: reads /etc/passwd')")
    pool = SandboxPool(size=1)
    with pytest.raises(BadInput, match="reads /etc/passwd"):
        pool.script(b"pass", b"", 5, 100)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _descendants() -> int:
    out = subprocess.run(["ps", "-eo", "pid,ppid,stat"], capture_output=True, text=True, check=True).stdout
    children: dict[str, list[str]] = {}
    for line in out.splitlines()[1:]:
        pid, parent, _ = line.split()
        children.setdefault(parent, []).append(pid)
    todo, found = [str(os.getpid())], 0
    while todo:
        for child in children.get(todo.pop(), []):
            found += 1
            todo.append(child)
    return found


def test_nothing_is_left_behind(mode):
    """Attacks on processes, files and descriptors, 200 runs: everything as before."""
    nasty = [row for row in rows("code_variants.jsonl") if row["attack"] and row["timeout_s"] <= 3]
    quick = [
        r
        for r in nasty
        if any(w in r["name"] for w in ("fork", "detached", "file", "fd", "conftest", "kill", "thread"))
    ]
    verdicts([{**row, "timeout_s": 1} for row in quick])
    verdicts([{"completion": ADD, "tests": ADD_TESTS, "entry_point": "add", "timeout_s": 5}] * 8)
    files, processes = _open_files(), _descendants()
    verdicts([{**row, "timeout_s": 1} for row in quick])
    verdicts([{"completion": ADD, "tests": ADD_TESTS, "entry_point": "add", "timeout_s": 5}] * 200)
    time.sleep(0.3)
    assert _open_files() == files
    assert _descendants() <= processes + 1  # `ps` itself
    rewarding.POOL.close()
    assert [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("advisor-")] == []


def test_runs_share_nothing(mode):
    """A file, an environment variable and a patched builtin of one run are not there in the next."""
    writer = "import os, builtins\nopen('left', 'w').write('x')\nopen('/dev/shm/left', 'w')\n"
    writer = writer if mode == "namespaces" else writer.replace("open('/dev/shm/left', 'w')\n", "")
    reader = "import os\nprint(sorted(os.listdir('.')), 'LEFT' in os.environ, sum([1, 2]))"
    pool = SandboxPool(size=1, mode=mode)
    writer += "os.environ['LEFT'] = '1'\nbuiltins.sum = None\nprint('done')"
    first = pool.script(writer.encode(), b"", 5, 1000)
    second = pool.script(reader.encode(), b"", 5, 1000)
    pool.close()
    assert (first.stdout, second.stdout) == (b"done\n", b"[] False 3\n")


def test_the_tests_are_not_in_the_candidate_s_memory(mode):
    """A program that reads all of its own memory does not find a string that only the tests hold."""
    program = (
        "import gc\n"
        "def f():\n"
        "    needle = '-'.join(['needle', 'in', 'the', 'tests'])\n"
        "    small = [o for o in gc.get_objects() if isinstance(o, (list, dict, tuple)) and len(o) < 50]\n"
        "    return any(needle in repr(o) for o in small)\n"
    )
    tests = [{"code": "hidden = 'needle-in-the-tests'\nassert f() is True"}]
    completion = f"```python\n{program}```"
    assert code_reward([completion] * 3, tests=[tests] * 3, entry_point="f") == [0.0] * 3


def test_a_keeper_outlives_the_thread_that_started_it(mode):
    """A keeper must not be tied to a thread of the trainer, which may be a short-lived one."""
    pool = SandboxPool(size=1, mode=mode)
    thread = threading.Thread(target=pool.script, args=(b"pass", b"", 10, 100))
    thread.start()
    thread.join()
    time.sleep(0.2)
    (keeper,) = pool._idle
    assert keeper.process.poll() is None
    assert pool.script(b"print(1)", b"", 10, 100).stdout == b"1\n"
    assert pool._idle == [keeper]
    pool.close()


def test_same_verdict_in_any_thread():
    cases = rows("code.jsonl")[:40]
    expected = [row["expected_pass"] for row in cases]
    found: dict[int, list[bool]] = {}

    def work(index: int) -> None:
        found[index] = [v == 1.0 for v in verdicts(cases)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(found.values()) == [expected] * 3


def _in_child(completion: str) -> float | None:
    return code_reward([completion], tests=[ADD_TESTS], entry_point=["add"])[0]


def test_same_verdict_in_forked_map_workers():
    code_reward([ADD], tests=[ADD_TESTS], entry_point=["add"])
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert (
            pool.map(_in_child, [ADD, "```python\ndef add(a, b):\n    return 0\n```"] * 3) == [1.0, 0.0] * 3
        )
    assert code_reward([ADD], tests=[ADD_TESTS], entry_point=["add"]) == [1.0]


def test_keeper_that_dies_is_replaced():
    code_reward([ADD], tests=[ADD_TESTS], entry_point=["add"])
    for keeper in list(POOL._idle):
        keeper.process.kill()
        keeper.process.wait()
    assert code_reward([ADD] * 4, tests=[ADD_TESTS] * 4, entry_point="add") == [1.0] * 4


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_as_another_user(tmp_path):
    """The same verdicts without root, where this interpreter can be read by others."""
    program = (
        "import os, sys\n"
        "os.setgroups([]); os.setgid(12345); os.setuid(12345)\n"
        "from pipelines.rewards import code_reward\n"
        f"print(code_reward([{ADD!r}, 'x'], tests=[{ADD_TESTS!r}] * 2, entry_point='add'))\n"
    )
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root, "HOME": "/"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    if any(sign in result.stderr for sign in ("Permission denied", "No such file", "No module named")):
        pytest.skip("this interpreter lives where another user cannot read it")
    assert result.stdout == "[1.0, 0.0]\n", result.stderr[-500:]


def test_extraction_of_programs():
    assert program_in("x = 1\n", None) == "x = 1"
    assert program_in("hello", None) is None
    assert program_in("", "f") is None
    assert program_in("```python\nprint(1)\n```\n```\n7\n```", None) == "print(1)"


PIECES = st.sampled_from(
    ["```python\n", "```", "~~~\n", "\n", "def add(a, b):\n", "    return a + b\n", "<think>", "</think>",
     "import os\n", "os._exit(0)\n", "\x00", "\ud800", "class ", "(", "'''", "print(1)\n", "\t", "> ", "1. "]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=12).map("".join)))
def test_never_an_exception_never_outside_the_range(completion):
    (reward,) = code_reward([completion], tests=[ADD_TESTS], entry_point=["add"], timeout_s=[2])
    assert reward in (0.0, 1.0)
