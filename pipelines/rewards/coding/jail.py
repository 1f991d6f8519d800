"""Locking a process up by Linux's own unprivileged means, step by step.

Two ways, both verified by a self-test before any program runs:
- namespaces: user, pid, network, mount, ipc and uts namespaces; a root of its own with read-only libraries
and an
  empty /tmp in memory; then Landlock (where the kernel has it), seccomp, rlimits, no capabilities.
- landlock: where namespaces are forbidden (many containers): Landlock for files, seccomp for everything
else, no new
  processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct

from pipelines.rewards.coding import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:  # this module is part of every forked run: what it imports is paid for each time
    from collections.abc import Sequence

NEW_USER, NEW_PID, NEW_NET, NEW_NS, NEW_IPC, NEW_UTS = (
    0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x08000000, 0x04000000)  # fmt: skip
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_NOATIME, _MS_BIND, _MS_REC, _MS_PRIVATE, _MS_RELATIME = (
    32,
    1024,
    4096,
    16384,
    1 << 18,
    1 << 21,
)
_DETACH = 2
INNER_UID = 1000
TMP_BYTES = 64 << 20
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

_libc = ctypes.CDLL(None, use_errno=True)
_prctl, _syscall, _capset = _libc.prctl, _libc.syscall, _libc.capset  # found once, not in every child


class NoJail(OSError):
    """This kernel or container refuses a step."""


def _check(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise NoJail(error, f"{what}: {os.strerror(error)}")
    return result


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    arguments = [x.encode() if x is not None else None for x in (source, target, kind)]
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() if data else None), f"mount {target}")


def unmount(target: str) -> None:
    """Take a mount away, at once for everybody who looks it up."""
    _check(_libc.umount2(target.encode(), _DETACH), f"umount {target}")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


# --- namespaces ---


def enter_namespaces() -> bool:
    """Move this process into namespaces of its own; True where it also got a second, unprivileged user id.

    As root a helper outside writes the map, so that jailed programs run as `nobody` outside (process limits
    do not bind root).
    """
    uid, gid = os.getuid(), os.getgid()
    ready = os.pipe()
    helper = 0
    if uid == 0:
        helper = os.fork()
        if helper == 0:
            os.close(ready[1])
            os.read(ready[0], 1)
            os._exit(0 if _write_maps(os.getppid(), two=True) else 1)
    try:
        _check(_libc.unshare(NEW_USER | NEW_NS | NEW_NET | NEW_IPC | NEW_UTS | NEW_PID), "unshare")
    except NoJail:
        if helper:
            os.close(ready[1])
            os.waitpid(helper, 0)
        raise
    two = False
    os.close(ready[0])
    os.close(ready[1])
    if helper:
        two = os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1]) == 0
    if not two:
        _write_own_map(uid, gid)
    return two


def _write_maps(pid: int, two: bool) -> bool:
    nobody = 65534
    try:
        _write(f"/proc/{pid}/setgroups", "deny")
        _write(f"/proc/{pid}/uid_map", f"0 0 1\n{INNER_UID} {nobody} 1\n")
        _write(f"/proc/{pid}/gid_map", f"0 0 1\n{INNER_UID} {nobody} 1\n")
    except OSError:
        return False
    return two


def _write_own_map(uid: int, gid: int) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):
            _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1\n")
        _write("/proc/self/gid_map", f"0 {gid} 1\n")
    except OSError as error:
        raise NoJail(error.errno, f"user namespace: {error.strerror}") from None


def build_root(paths: Sequence[str], tmp: str) -> None:
    """Make a new root in memory that shows `paths` read-only, an empty /tmp and four devices, and move into
    it.
    """
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    base = next(
        p for p in ("/mnt", "/srv", "/media", "/opt", "/home") if os.path.isdir(p) and not _holds(p, paths)
    )
    _mount("tmpfs", base, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    for path in paths:
        _show(base, path)
    os.makedirs(base + "/dev", exist_ok=True)
    for device in DEVICES:
        with contextlib.suppress(OSError):
            _write(base + device, "")
            _mount(device, base + device, None, _MS_BIND)
    os.symlink(tmp + "/shm", base + "/dev/shm")
    os.makedirs(base + tmp)
    os.chdir(base)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")
    _mount(None, "/", None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def _holds(folder: str, paths: Sequence[str]) -> bool:
    return any(os.path.realpath(p).startswith(os.path.realpath(folder) + "/") for p in paths)


def _show(base: str, path: str) -> None:
    """`path` at the same place under `base`: a link as a link, a file or folder as a read-only mount."""
    target = base + path
    if os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        _write(target, "")
    _mount(path, target, None, _MS_BIND | _MS_REC)
    flags = os.statvfs(target).f_flag
    kept = (flags & 15) | (_MS_NOATIME if flags & 1024 else 0) | (_MS_RELATIME if flags & 4096 else 0)
    _mount(None, target, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | kept)


def mount_tmp(tmp: str) -> None:
    """An empty folder in memory for one run."""
    options = f"size={TMP_BYTES},nr_inodes=4096,mode=1777"
    _mount("tmpfs", tmp, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)
    for name in (tmp + "/work", tmp + "/shm"):
        os.mkdir(name)
        os.chmod(name, 0o1777)


def own_proc(tmp: str) -> int | None:
    """A descriptor of this pid namespace's /proc that no path leads to; None where the container forbids
    it.
    """
    try:
        _mount("proc", tmp, "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except NoJail:
        return None
    descriptor = os.open(tmp, os.O_PATH | os.O_DIRECTORY)
    unmount(tmp)
    return descriptor


# --- Landlock ---

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ = 0b1101  # execute, read file, read folder
_FILE_WRITE = 0b10
_FS_BY_ABI = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_ON_FILES = (
    0x8007 | 0x4000
)  # execute, write, read, truncate, ioctl: the rights that a rule on a file may name


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 where it has none."""
    version = _syscall(_CREATE, None, ctypes.c_size_t(0), 1)
    return max(0, int(version))


def landlock_ruleset(readable: Sequence[str], writable: Sequence[str]) -> int:
    """A descriptor of rules that allow these paths only, no TCP, and no signal or abstract socket outside."""
    abi = landlock_abi()
    if not abi:
        raise NoJail(38, "Landlock is not available")
    handled = _FS_BY_ABI[min(abi, 5)]
    attributes = struct.pack("<QQQ", handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _check(_syscall(_CREATE, ctypes.c_char_p(attributes), ctypes.c_size_t(size), 0), "Landlock")
    for paths, rights in ((readable, _READ), (writable, handled & ~0x1 & ~0x8000)):
        for path in paths:
            _allow(ruleset, path, rights & handled)
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _ON_FILES
        rule = struct.pack("<Qi", rights, descriptor)
        _check(_syscall(_ADD, ruleset, 1, ctypes.c_char_p(rule), 0), f"Landlock rule for {path}")
    finally:
        os.close(descriptor)


# --- the last steps, in the child ---


def no_new_privileges() -> None:
    """No program started from here can gain rights, and no core file or trace can be taken."""
    _check(_prctl(38, 1, 0, 0, 0), "no_new_privs")
    _prctl(4, 0, 0, 0, 0)


def bound_capabilities() -> None:
    """Empty the bounding set: no program started from here on can have a capability."""
    for capability in range(64):
        if _prctl(24, capability, 0, 0, 0) != 0:
            break


def drop_capabilities(become: int | None) -> None:
    """Leave root inside the namespace where there is another user, and give up every capability."""
    if become is not None:
        _check(_syscall(_number("setresgid"), become, become, become), "setresgid")
        _check(_syscall(_number("setresuid"), become, become, become), "setresuid")
    header = struct.pack("<Ii", 0x20080522, 0)
    _check(_capset(ctypes.c_char_p(header), ctypes.c_char_p(bytes(24))), "capset")


def _number(name: str) -> int:
    return {"x86_64": {"setresuid": 117, "setresgid": 119}, "aarch64": {"setresuid": 147, "setresgid": 149}}[
        os.uname().machine
    ][name]


def processes_are_counted_here() -> bool:
    """Whether RLIMIT_NPROC counts this user namespace alone (Linux 5.14), not all threads of the user
    outside.
    """
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(c for c in minor if c.isdigit()) or 0)) >= (5, 14)


def limit_resources(memory_bytes: int, cpu_s: int, processes: int | None) -> None:
    """Rlimits of one run: address space, processor time, file size, descriptors, processes, no core."""
    limits: dict[str, int | None] = {
        "RLIMIT_AS": memory_bytes,
        "RLIMIT_CPU": cpu_s,
        "RLIMIT_FSIZE": 32 << 20,
        "RLIMIT_NOFILE": 128,
        "RLIMIT_NPROC": processes,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_STACK": 128 << 20,
    }
    for name, value in limits.items():
        if value is None:
            continue
        which = getattr(resource, name, None)
        if which is not None:
            hard = resource.getrlimit(which)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (value, value))


def die_with_parent() -> None:
    """Be killed when the parent process ends."""
    _check(_prctl(1, 9, 0, 0, 0), "pdeathsig")


def prefer_as_oom_victim() -> None:
    """Let the kernel, where memory runs out, end a jailed program before anything of the user's."""
    with contextlib.suppress(OSError):
        _write("/proc/self/oom_score_adj", "1000")


def lock(become: int | None, ruleset: int | None, program: bytes) -> None:
    """The last steps before a program runs: no new privileges, Landlock, no capabilities, seccomp."""
    no_new_privileges()
    if ruleset is not None:
        _check(_syscall(_RESTRICT, ruleset, 0), "Landlock restrict")
        os.close(ruleset)
    drop_capabilities(become)
    syscalls.install(program)
