"""A warm, jailed process that forks one isolated run per job.

Run as `python -I keeper.py CONTROL_FD MODE FOLDER PATHS`. The keeper reads headers only. A program and its
tests arrive as descriptors that it hands on unread, so that no run can find another's program, or a test, in
the memory it was forked from. After each run every process of it is killed, /tmp is emptied, and the keeper
says so.
"""

from __future__ import annotations

import _socket
import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # this module is part of every forked run: what it imports is paid for each time
    from typing import Any, NoReturn

PRELOAD = (
    "ast bisect collections copy functools heapq itertools math operator random re string threading typing"
)
"""What programs import most; the rest they import themselves."""

TREE_BYTES = 1536 << 20
MAX_TREE = 64
FOLDER_BYTES = 64 << 20
MAX_DESCRIPTORS = 8


class Keeper:
    """The loop of one keeper. `mode` is "namespaces" or "landlock"."""

    def __init__(self, control: _socket.socket, mode: str, folder: str, paths: list[str]) -> None:
        self.control = control
        self.mode = mode
        self.folder = folder
        self.paths = paths
        self.become: int | None = None
        self.proc: int | None = None
        self.readable: list[str] = []
        self.writable: list[str] = []
        self.ruleset: int | None = None
        self.filter: bytes | None = None
        self.process_limit: int | None = None

    # --- setting up ---

    def set_up(self) -> None:
        """Lock the keeper itself up, and prepare what every run needs."""
        from pipelines.rewards.coding import jail

        if self.mode not in ("namespaces", "landlock"):
            raise OSError(22, f"unknown mode {self.mode}")
        jail.prefer_as_oom_victim()
        if self.mode == "landlock":
            # not die_with_parent: the parent is whatever thread of the trainer started this keeper
            self.readable = [*self.paths, *jail.DEVICES]
        else:
            if jail.enter_namespaces():
                self.become = jail.INNER_UID
            child = os.fork()
            if child:
                self.control.close()
                os.waitpid(child, 0)
                os._exit(0)
            jail.die_with_parent()
            # where the interpreter itself lives in /tmp, programs get another folder
            self.folder = "/run" if any(p.startswith("/tmp/") for p in self.paths) else "/tmp"
            jail.build_root(self.paths, self.folder)
            self.proc = jail.own_proc(self.folder)
            jail.mount_tmp(self.folder)
            self.readable = ["/"]
            self.process_limit = MAX_TREE if jail.processes_are_counted_here() else None
        self.writable = [self.folder, *jail.DEVICES]
        jail.bound_capabilities()
        self.prepare()
        os.environ.clear()
        os.environ.update(PATH="/usr/bin:/bin", HOME=self.folder, TMPDIR=self.folder, LANG="C.UTF-8")
        os.environ["OPENBLAS_NUM_THREADS"] = "1"

    def prepare(self) -> None:
        """The Landlock rules (anew when /tmp is a new one) and the seccomp filter."""
        from pipelines.rewards.coding import jail, syscalls

        if self.ruleset is not None:
            os.close(self.ruleset)
            self.ruleset = None
        if jail.landlock_abi() or self.mode == "landlock":
            self.ruleset = jail.landlock_ruleset(self.readable, self.writable)
        scoped = jail.landlock_abi() >= 6
        self.filter = syscalls.program(self.may_fork, True) if scoped else None

    @property
    def may_fork(self) -> bool:
        """Programs may start processes only where the whole tree can be counted, weighed and killed."""
        return self.proc is not None

    def serve(self) -> None:
        """Run jobs until the other end of the control socket is closed."""
        gc.collect()
        gc.freeze()
        self.say({"ready": self.mode, "forks": self.may_fork})
        wanted = 1
        while True:
            spares = [self.spare() for _ in range(wanted)]
            header, descriptors = self.hear()
            wanted = 1 if header["kind"] == "script" else 2
            while len(spares) < wanted:
                spares.append(self.spare())
            self.start(header, descriptors, spares)
            for descriptor in descriptors:
                os.close(descriptor)
            report = self.watch(header, [pid for pid, _ in spares])
            self.clean([pid for pid, _ in spares])
            self.say(report)

    def say(self, message: dict[str, Any]) -> None:
        self.control.send(json.dumps(message).encode())

    def hear(self) -> tuple[dict[str, Any], list[int]]:
        """The next header and its descriptors; leaves where the trainer is gone."""
        data, descriptors = _receive(self.control)
        return json.loads(data), descriptors

    # --- one run ---

    def spare(self) -> tuple[int, _socket.socket]:
        """A locked child that waits for its job: forking and locking happen while nobody waits."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid:
            theirs.close()
            return pid, ours
        try:
            self.child(theirs.detach())
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(70)

    def start(
        self, header: dict[str, Any], descriptors: list[int], spares: list[tuple[int, _socket.socket]]
    ) -> None:
        """Give the job to the spares: the candidate first, then, for asserts, the examiner."""
        jobs: list[tuple[str, list[int]]] = [(header["kind"], descriptors)]
        if header["kind"] == "asserts":
            source, tests, verdict = descriptors
            ours, theirs = _socket.socketpair()
            jobs = [("asserts", [source, theirs.fileno()]), ("examiner", [tests, ours.fileno(), verdict])]
        for (role, given), (_, channel) in zip(jobs, spares, strict=False):
            message = json.dumps({**header, "role": role}).encode()
            rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in given)
            with contextlib.suppress(OSError):  # a spare that has died: no verdict
                channel.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        if header["kind"] == "asserts":
            ours.close()
            theirs.close()
        for _, channel in spares:
            channel.close()

    def child(self, channel: int) -> NoReturn:
        """In the forked child: close and lock everything, wait for the job, run it."""
        from pipelines.rewards.coding import candidate, examiner, jail, syscalls

        os.setsid()
        if self.mode == "landlock":
            jail.die_with_parent()
        low = 3  # 0, 1 and 2 are /dev/null
        for fd in sorted([channel] if self.ruleset is None else [channel, self.ruleset]):
            os.closerange(low, fd)
            low = fd + 1
        os.closerange(low, 256)
        os.chdir(self.folder + ("/work" if self.mode == "namespaces" else ""))
        jail.lock(self.become, self.ruleset, self.filter or syscalls.program(self.may_fork, False))
        gc.unfreeze()
        candidate.warm_up()
        socket = _socket.socket(fileno=channel)
        data, given = _receive(socket)
        socket.close()
        header = json.loads(data)
        jail.limit_resources(header["memory"], int(header["cpu"]) + 1, self.process_limit)
        program = _read_all(given[0])
        if header["role"] == "examiner":
            examiner.main(program, given[2], given[1])
        if header["role"] == "script":
            os.dup2(given[1], 0)
            os.dup2(given[2], 1)
            os.close(given[1])
            os.close(given[2])
        candidate.main(header["role"], program, given[1] if header["role"] == "asserts" else None)
        raise AssertionError("unreachable")

    def watch(self, header: dict[str, Any], children: list[int]) -> dict[str, Any]:
        """Until the trainer says `end`: count and weigh the processes. Then the candidate's exit status."""
        poller = select.poll()
        poller.register(self.control.fileno(), select.POLLIN)
        why = None
        deadline = time.monotonic() + header["limit_s"]
        while True:
            if poller.poll(25):
                data = self.control.recv(4096)
                if not data:
                    self.clean(children)
                    os._exit(0)
                wait_s = float(json.loads(data).get("wait_s", 0))
                return {"status": exit_status(children[0], wait_s), "why": why}
            why = why or self.excess()
            if why is None and time.monotonic() > deadline:
                why = "time"
            if why:
                self.kill(children)

    def excess(self) -> str | None:
        """What the run has too much of: processes, memory or disk; None where all is well."""
        if self.mode == "landlock":
            return "disk" if _folder_bytes(self.folder) > FOLDER_BYTES else None
        if self.proc is None:
            return None
        listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.proc)
        try:
            pids = [name for name in os.listdir(listing) if name.isdigit() and name != "1"]
            if len(pids) > MAX_TREE:
                return "processes"
            return "memory" if sum(_resident_bytes(listing, pid) for pid in pids) > TREE_BYTES else None
        finally:
            os.close(listing)

    def kill(self, children: list[int]) -> None:
        """End every process of the run."""
        if self.mode == "namespaces":
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # this is pid 1: everything in the namespace but itself
        else:
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def clean(self, children: list[int]) -> None:
        """Kill and reap everything, and give the next run an empty folder."""
        deadline = time.monotonic() + 10
        while True:
            self.kill(children)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break
            if time.monotonic() > deadline:
                os._exit(1)  # a process that cannot be killed: the trainer starts another keeper
            time.sleep(0.0002)
        if not self.empty_folder():
            from pipelines.rewards.coding import jail

            jail.unmount(self.folder)
            jail.mount_tmp(self.folder)
            self.prepare()

    def empty_folder(self) -> bool:
        """Whether the folder is clean again; False where a new one is cheaper or needed."""
        if self.mode == "namespaces":
            inside = [os.path.join(self.folder, name) for name in ("work", "shm")]
            return sorted(os.listdir(self.folder)) == ["shm", "work"] and not any(map(os.listdir, inside))
        for root, folders, files in os.walk(self.folder, topdown=False):
            for name in files:
                os.unlink(os.path.join(root, name))
            for name in folders:
                path = os.path.join(root, name)
                if os.path.islink(path):
                    os.unlink(path)
                else:
                    os.rmdir(path)
        return True


def _receive(channel: _socket.socket) -> tuple[bytes, list[int]]:
    """One message and its descriptors; leaves the process where the other end is closed."""
    data, ancillary, _, _ = channel.recvmsg(4096, _socket.CMSG_SPACE(4 * MAX_DESCRIPTORS))
    if not data:
        os._exit(0)
    descriptors = []
    for level, kind, content in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            descriptors += memoryview(content[: len(content) // 4 * 4]).cast("i").tolist()
    return data, descriptors


def exit_status(pid: int, wait_s: float) -> int | None:
    """How a child ended, waiting for it up to `wait_s`; None where it still runs."""
    deadline = time.monotonic() + wait_s
    pause = 0.0001
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause)
        pause = min(pause * 2, 0.01)


def _read_all(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb") as file:
        return file.read()


def _resident_bytes(listing: int, pid: str) -> int:
    try:
        descriptor = os.open(f"{pid}/statm", os.O_RDONLY, dir_fd=listing)
    except OSError:
        return 0
    try:
        fields = os.read(descriptor, 200).split()
        return (int(fields[1]) - int(fields[2])) * 4096
    except (OSError, IndexError, ValueError):
        return 0
    finally:
        os.close(descriptor)


def _folder_bytes(folder: str) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
    return total


def main() -> None:
    """Import, lock up, serve."""
    control = _socket.socket(fileno=int(sys.argv[1]))
    # the packages without what their __init__ imports: every page of this process is copied for every run
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in ("pipelines.rewards.coding", "pipelines.rewards", "pipelines"):
        package = types.ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package
        folder = os.path.dirname(folder)
    for name in PRELOAD.split():
        __import__(name)
    from pipelines.rewards.coding import candidate, examiner, jail, pytest_shim, syscalls, wire  # noqa: F401

    keeper = Keeper(control, sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
    try:
        keeper.set_up()
    except OSError as error:
        keeper.say({"error": f"{error}"[:500]})
        os._exit(3)
    keeper.serve()


if __name__ == "__main__":
    main()
