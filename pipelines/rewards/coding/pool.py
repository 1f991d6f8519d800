"""The trainer's side of the sandbox: keepers, one run at a time each, from any thread and in forked
workers.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimators.errors import BadInput
from pipelines.rewards.workers import cores

MEMORY_BYTES = 1 << 30
START_LIMIT_S = 60.0
MODES = ("namespaces", "landlock")


class KeeperLost(OSError):
    """The keeper died or stopped answering; the run has no verdict and is tried once more elsewhere."""


@dataclass(frozen=True)
class ScriptResult:
    """What a program printed, whether that is all of it, and how it ended (None: it was stopped)."""

    stdout: bytes
    complete: bool
    status: int | None


class Keeper:
    """One keeper process and its control socket."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.folder = tempfile.mkdtemp(prefix="advisor-run-") if mode == "landlock" else ""
        script = str(Path(__file__).with_name("keeper.py"))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = ours
        env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    script,
                    str(theirs.fileno()),
                    mode,
                    self.folder,
                    json.dumps(visible_paths()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=env,
                cwd="/",
            )
        finally:
            theirs.close()

    def hear(self, limit_s: float) -> dict[str, Any]:
        """Its next message; KeeperLost where none comes."""
        if not _readable(self.control.fileno(), limit_s):
            raise KeeperLost("the sandbox does not answer")
        try:
            data = self.control.recv(8192)
        except OSError as error:
            raise KeeperLost(str(error)) from None
        if not data:
            raise KeeperLost("the sandbox ended")
        found = json.loads(data)
        assert isinstance(found, dict)
        return found

    def tell(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        try:
            socket.send_fds(self.control, [json.dumps(message).encode()], descriptors or [])
        except OSError as error:
            raise KeeperLost(str(error)) from None

    def close(self) -> None:
        """End it and everything in it; as pid 1 of its namespace it takes its programs along."""
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """Let go of a keeper that belongs to the parent of this forked process."""
        self.control.close()
        self.process.returncode = 0

    # --- runs ---

    def script(self, source: bytes, stdin: bytes, limit_s: float, max_stdout: int) -> ScriptResult:
        """Run a program on real pipes; its standard output up to `max_stdout` bytes."""
        program = _memory_file(source)
        stdin_r, stdin_w = os.pipe()
        stdout_r, stdout_w = os.pipe()
        deadline = time.monotonic() + limit_s
        try:
            self.tell(_header("script", limit_s), [program, stdin_r, stdout_w])
            for fd in (program, stdin_r, stdout_w):
                os.close(fd)
            program = stdin_r = stdout_w = -1
            stdout, end = _exchange(stdin_w, stdin, stdout_r, deadline, max_stdout)
            stdin_w = -1
        finally:
            for fd in (program, stdin_r, stdin_w, stdout_r, stdout_w):
                if fd >= 0:
                    os.close(fd)
        report = self.end(max(0.0, deadline - time.monotonic()) if end == "eof" else 0.0)
        # a program that has ended has printed all it will, even where another process holds its pipe open
        complete = end == "eof" or (end == "time" and report["status"] is not None)
        return ScriptResult(stdout, complete, report["status"])

    def asserts(self, source: bytes, tests: bytes, limit_s: float) -> dict[str, Any]:
        """Run tests against a program; the examiner's verdict, or a failed one where none came in time."""
        program, questions = _memory_file(source), _memory_file(tests)
        verdict_r, verdict_w = os.pipe()
        deadline = time.monotonic() + limit_s
        try:
            self.tell(_header("asserts", limit_s), [program, questions, verdict_w])
            os.close(verdict_w)
            verdict_w = -1
            line = _read_line(verdict_r, deadline)
        finally:
            for fd in (program, questions, verdict_r, verdict_w):
                if fd >= 0:
                    os.close(fd)
        report = self.end(0.0)
        if line is None:
            return {"passed": False, "failed": -1, "why": report["why"] or "no verdict in time"}
        found = json.loads(line)
        return found if isinstance(found, dict) else {"passed": False, "failed": -1, "why": "no verdict"}

    def end(self, wait_s: float) -> dict[str, Any]:
        self.tell({"end": True, "wait_s": wait_s})
        return self.hear(wait_s + 15)


class SandboxPool:
    """At most `size` keepers, started when first needed. `mode` None takes the strongest that this machine
    offers.
    """

    def __init__(self, size: int | None = None, mode: str | None = None) -> None:
        self.size = size or min(8, cores())
        self.mode = mode
        self._condition = threading.Condition()
        self._idle: list[Keeper] = []
        self._busy: set[Keeper] = set()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._after_fork)

    def script(self, source: bytes, stdin: bytes, limit_s: float, max_stdout: int) -> ScriptResult:
        """See Keeper.script. BadInput where this machine offers no strong isolation."""
        result: ScriptResult = self._with_keeper(lambda k: k.script(source, stdin, limit_s, max_stdout))
        return result

    def asserts(self, source: bytes, tests: bytes, limit_s: float) -> dict[str, Any]:
        """See Keeper.asserts. BadInput where this machine offers no strong isolation."""
        result: dict[str, Any] = self._with_keeper(lambda k: k.asserts(source, tests, limit_s))
        return result

    def _with_keeper(self, work: Any) -> Any:
        for _ in range(3):
            keeper = self._acquire()
            try:
                result = work(keeper)
            except KeeperLost:
                self._discard(keeper)
                continue
            except BaseException:
                self._discard(keeper)
                raise
            self._release(keeper)
            return result
        raise RuntimeError("the sandbox died three times on one program; see the kernel's log")

    def _acquire(self) -> Keeper:
        with self._condition:
            while not self._idle and len(self._busy) >= self.size:
                self._condition.wait()
            keeper = None
            while self._idle and keeper is None:
                keeper = self._idle.pop()
                if keeper.process.poll() is not None:  # killed from outside since its last run
                    keeper.close()
                    keeper = None
            keeper = keeper or self._start()
            self._busy.add(keeper)
            return keeper

    def _start(self) -> Keeper:
        """A keeper in the strongest mode that passes the self-test."""
        if sys.platform != "linux":
            raise BadInput("model-written code is only run in a strong sandbox, which needs Linux")
        refusals = []
        for mode in [self.mode] if self.mode else MODES:
            keeper = Keeper(mode)
            try:
                started = keeper.hear(START_LIMIT_S)
                refusal = started.get("error") or self_test(keeper)
            except KeeperLost as error:
                refusal = str(error)
            if refusal is None:
                self.mode = mode
                return keeper
            keeper.close()
            refusals.append(f"{mode}: {refusal}")
        raise BadInput(
            "model-written code is only run in a strong sandbox, and this machine offers none "
            f"({'; '.join(refusals)}). Allow unprivileged user namespaces, or use a kernel of 5.13 or newer "
            "with Landlock, or train with another reward"
        )

    def _release(self, keeper: Keeper) -> None:
        with self._condition:
            self._busy.discard(keeper)
            self._idle.append(keeper)
            self._condition.notify()

    def _discard(self, keeper: Keeper) -> None:
        keeper.close()
        with self._condition:
            self._busy.discard(keeper)
            self._condition.notify()

    def close(self) -> None:
        """End all keepers; new ones start when the pool is used again."""
        with self._condition:
            for keeper in [*self._idle, *self._busy]:
                keeper.close()
            self._idle.clear()
            self._busy.clear()

    def _after_fork(self) -> None:
        for keeper in [*self._idle, *self._busy]:
            keeper.forget()
        self._condition = threading.Condition()
        self._idle, self._busy = [], set()


SELF_TEST = b"""
import ctypes, os, socket, sys
leaks = []
def tried(name, action):
    try:
        action()
    except BaseException:
        return
    leaks.append(name)
libc = ctypes.CDLL(None, use_errno=True)
tried("reads /etc/passwd", lambda: open("/etc/passwd").read())
for secret in SECRETS:
    tried("reads " + secret, lambda: open(secret).read())
tried("writes outside", lambda: open(os.path.join(HOME, ".advisor-leak"), "w"))
tried("opens a socket", lambda: socket.socket())
tried("sees the environment", lambda: os.environ["ADVISOR_SECRET"])
tried("signals its parent", lambda: os.kill(os.getppid() or 1, 0))
tried("starts a program", lambda: os.execv(sys.executable, [sys.executable, "-c", "pass"]))
tried("leaves its namespaces", lambda: 1 / (libc.unshare(0x10000000) == 0))
tried("traces", lambda: 1 / (libc.ptrace(0, 0, 0, 0) == 0))
tried("mounts", lambda: 1 / (libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None) == 0))
open("written", "w").write("x")
print("leaks:", ", ".join(leaks) or "none")
"""


def self_test(keeper: Keeper) -> str | None:
    """What a probe inside could do that it must not; None where every wall stands."""
    home = os.path.expanduser("~")
    with tempfile.NamedTemporaryFile(prefix="advisor-", mode="w") as marker:
        marker.write("a file outside the sandbox")
        marker.flush()
        secrets = [marker.name, __file__, f"/proc/{os.getpid()}/environ", "/proc/self/environ"]
        source = f"HOME = {home!r}\nSECRETS = {secrets!r}\n".encode() + SELF_TEST
        result = keeper.script(source, b"", 20.0, 10_000)
    text = result.stdout.decode("utf-8", errors="replace").strip()
    if text == "leaks: none" and result.status == 0:
        return None
    return f"the self-test says {text!r}" if text else f"the self-test ended with status {result.status}"


POOL = SandboxPool()
"""The pool that `code_reward` uses."""


def visible_paths() -> list[str]:
    """What a jailed program may read: the standard library, numpy where it is installed, shared libraries."""
    paths = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(Path(os.__file__).parent)}
    paths.add(str(Path(sys.base_prefix) / "lib"))
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        paths |= {str(Path(folder) / name) for name in ("numpy", "numpy.libs")}
    paths |= {"/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo"}
    found = [p for p in paths if p and os.path.exists(p)]
    return sorted(found, key=len)


def _header(kind: str, limit_s: float) -> dict[str, Any]:
    return {"kind": kind, "memory": MEMORY_BYTES, "cpu": limit_s + 1, "limit_s": limit_s + 2}


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("advisor", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    return descriptor


def _readable(descriptor: int, limit_s: float) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0, int(limit_s * 1000))))


def _exchange(
    stdin_w: int, stdin: bytes, stdout_r: int, deadline: float, max_stdout: int
) -> tuple[bytes, str]:
    """Feed `stdin`, read until end of file, the deadline or the cap; closes `stdin_w`. Output, and which."""
    os.set_blocking(stdin_w, False)
    poller = select.poll()
    poller.register(stdout_r, select.POLLIN)
    view = memoryview(stdin)
    output = bytearray()
    writing = True
    if view:
        poller.register(stdin_w, select.POLLOUT)
    else:
        os.close(stdin_w)
        writing = False
    try:
        while True:
            left = deadline - time.monotonic()
            events = poller.poll(max(0, int(left * 1000) + 1)) if left > 0 else []
            if not events:
                return bytes(output), "time"
            for descriptor, _ in events:
                if descriptor == stdout_r:
                    piece = os.read(stdout_r, 65536)
                    if not piece:
                        return bytes(output), "eof"
                    output += piece
                    if len(output) > max_stdout:
                        return bytes(output), "cap"
                    continue
                try:
                    view = view[os.write(stdin_w, view[:65536]) :]
                except BlockingIOError:
                    continue
                except OSError:
                    view = memoryview(b"")
                if not view:
                    poller.unregister(stdin_w)
                    os.close(stdin_w)
                    writing = False
    finally:
        if writing:
            os.close(stdin_w)


def _read_line(descriptor: int, deadline: float) -> bytes | None:
    data = bytearray()
    while not data.endswith(b"\n"):
        if not _readable(descriptor, deadline - time.monotonic()):
            return None
        piece = os.read(descriptor, 65536)
        if not piece or len(data) > 1 << 20:
            return None
        data += piece
    return bytes(data)
