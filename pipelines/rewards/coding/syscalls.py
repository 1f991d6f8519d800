"""The seccomp filter: which system calls a jailed process may make. Everything else fails with EPERM."""

from __future__ import annotations

import ctypes
import os
import struct

_NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7,
        "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13,
        "rt_sigprocmask": 14, "rt_sigreturn": 15, "ioctl": 16, "pread64": 17, "pwrite64": 18, "readv": 19,
        "writev": 20, "access": 21, "pipe": 22, "select": 23, "sched_yield": 24, "mremap": 25, "msync": 26,
        "mincore": 27, "madvise": 28, "dup": 32, "dup2": 33, "pause": 34, "nanosleep": 35, "getitimer": 36,
        "alarm": 37, "setitimer": 38, "getpid": 39, "sendfile": 40, "sendto": 44, "recvfrom": 45,
        "sendmsg": 46, "recvmsg": 47, "shutdown": 48, "getsockname": 51, "getpeername": 52,
        "socketpair": 53, "setsockopt": 54, "getsockopt": 55, "clone": 56, "fork": 57, "vfork": 58,
        "exit": 60, "wait4": 61, "kill": 62, "uname": 63, "fcntl": 72, "flock": 73, "fsync": 74,
        "fdatasync": 75, "truncate": 76, "ftruncate": 77, "getcwd": 79, "chdir": 80, "fchdir": 81,
        "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88,
        "readlink": 89, "chmod": 90, "fchmod": 91, "umask": 95, "gettimeofday": 96, "getrlimit": 97,
        "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107,
        "getegid": 108, "getppid": 110, "getpgrp": 111, "setsid": 112, "getgroups": 115, "getresuid": 118,
        "getresgid": 120, "getpgid": 121, "getsid": 124, "sigaltstack": 131, "statfs": 137, "fstatfs": 138,
        "prctl": 157, "arch_prctl": 158, "setrlimit": 160, "gettid": 186, "tkill": 200, "time": 201,
        "futex": 202, "sched_setaffinity": 203, "sched_getaffinity": 204, "getdents64": 217,
        "set_tid_address": 218, "restart_syscall": 219, "fadvise64": 221, "clock_gettime": 228,
        "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "epoll_wait": 232, "epoll_ctl": 233,
        "tgkill": 234, "utimes": 235, "waitid": 247, "openat": 257, "mkdirat": 258, "newfstatat": 262,
        "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "readlinkat": 267,
        "fchmodat": 268, "faccessat": 269, "pselect6": 270, "ppoll": 271, "set_robust_list": 273,
        "get_robust_list": 274, "utimensat": 280, "epoll_pwait": 281, "eventfd": 284, "fallocate": 285,
        "eventfd2": 290, "epoll_create1": 291, "dup3": 292, "pipe2": 293, "preadv": 295, "pwritev": 296,
        "prlimit64": 302, "getcpu": 309, "renameat2": 316, "getrandom": 318, "membarrier": 324,
        "copy_file_range": 326, "statx": 332, "rseq": 334, "close_range": 436, "faccessat2": 439,
        "epoll_pwait2": 441, "clone3": 435,
    },
    "aarch64": {
        "getcwd": 17, "eventfd2": 19, "epoll_create1": 20, "epoll_ctl": 21, "epoll_pwait": 22, "dup": 23,
        "dup3": 24, "fcntl": 25, "ioctl": 29, "flock": 32, "mkdirat": 34, "unlinkat": 35, "symlinkat": 36,
        "linkat": 37, "renameat": 38, "statfs": 43, "fstatfs": 44, "truncate": 45, "ftruncate": 46,
        "fallocate": 47, "faccessat": 48, "chdir": 49, "fchdir": 50, "fchmod": 52, "fchmodat": 53,
        "openat": 56, "close": 57, "pipe2": 59, "getdents64": 61, "lseek": 62, "read": 63, "write": 64,
        "readv": 65, "writev": 66, "pread64": 67, "pwrite64": 68, "preadv": 69, "pwritev": 70,
        "sendfile": 71, "pselect6": 72, "ppoll": 73, "readlinkat": 78, "newfstatat": 79, "fstat": 80,
        "fsync": 82, "fdatasync": 83, "utimensat": 88, "exit": 93, "exit_group": 94, "waitid": 95,
        "set_tid_address": 96, "futex": 98, "set_robust_list": 99, "get_robust_list": 100, "nanosleep": 101,
        "getitimer": 102, "setitimer": 103, "clock_gettime": 113, "clock_getres": 114,
        "clock_nanosleep": 115, "sched_setaffinity": 122, "sched_getaffinity": 123, "sched_yield": 124,
        "restart_syscall": 128, "kill": 129, "tkill": 130, "tgkill": 131, "sigaltstack": 132,
        "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "getresuid": 148, "getresgid": 150,
        "times": 153, "getpgid": 155, "getsid": 156, "setsid": 157, "getgroups": 158, "uname": 160,
        "getrlimit": 163, "setrlimit": 164, "getrusage": 165, "umask": 166, "prctl": 167, "getcpu": 168,
        "gettimeofday": 169, "getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175, "getgid": 176,
        "getegid": 177, "gettid": 178, "sysinfo": 179, "socketpair": 199, "getsockname": 204,
        "getpeername": 205, "sendto": 206, "recvfrom": 207, "setsockopt": 208, "getsockopt": 209,
        "shutdown": 210, "sendmsg": 211, "recvmsg": 212, "brk": 214, "munmap": 215, "mremap": 216,
        "clone": 220, "mmap": 222, "fadvise64": 223, "mprotect": 226, "msync": 227, "mincore": 232,
        "madvise": 233, "wait4": 260, "prlimit64": 261, "renameat2": 276, "getrandom": 278,
        "membarrier": 283, "copy_file_range": 285, "statx": 291, "rseq": 293, "close_range": 436,
        "faccessat2": 439, "epoll_pwait2": 441, "clone3": 435,
    },
}  # fmt: skip
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant."""

_LOAD, _JUMP, _JUMP_EQ, _JUMP_GT, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x05, 0x15, 0x25, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_ALLOWED: Instruction = (_RETURN, 0, 0, _ALLOW)
_REFUSED: Instruction = (_RETURN, 0, 0, _ERRNO | _EPERM)
_NEW_NAMESPACES = 0x7E020000 | 0x02000000
_CLONE_THREAD = 0x00010000
_PR_SET_NAME, _PR_GET_NAME = 15, 16

_CHECKED = (
    "clone",
    "clone3",
    "kill",
    "tgkill",
    "tkill",
    "prctl",
    "prlimit64",
    "socketpair",
    "fork",
    "vfork",
    "ioctl",
)


_prctl = ctypes.CDLL(None, use_errno=True).prctl  # found once, not in every child


def supported() -> bool:
    """Whether this processor's system call numbers are known here."""
    return os.uname().machine in _NUMBERS


def program(allow_fork: bool, signals_are_scoped: bool) -> bytes:
    """The filter's code.

    Without `signals_are_scoped` (Landlock's signal scope) a process may signal itself only: the code holds
    the pid of the process that asks for it.
    """
    if not supported():
        raise OSError(38, f"seccomp: the system calls of {os.uname().machine} are not known here")
    instructions = _program(os.uname().machine, allow_fork, signals_are_scoped)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)


def install(code: bytes) -> None:
    """Put the filter on this process for good. Needs no_new_privs. OSError where the kernel refuses."""
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("<HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    if _prctl(22, 2, ctypes.c_char_p(header), 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"seccomp: {os.strerror(error)}")


def _program(machine: str, allow_fork: bool, signals_are_scoped: bool) -> list[Instruction]:
    """A binary search over the numbers: the kernel tries every number once per filter, so depth is what
    costs.
    """
    numbers = _NUMBERS[machine]
    actions = {number: name for name, number in numbers.items()}
    body = _search(sorted(actions), actions, allow_fork, signals_are_scoped)
    return [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQ, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        *body,
    ]


def _search(
    numbers: list[int], actions: dict[int, str], allow_fork: bool, signals_are_scoped: bool
) -> list[Instruction]:
    """Instructions that decide the loaded number among `numbers`."""
    names = [actions[n] for n in numbers]
    plain = not any(name in _CHECKED for name in names)
    if plain and numbers[-1] - numbers[0] == len(numbers) - 1:  # a run of allowed numbers: two comparisons
        return [(_JUMP_GE, 0, 2, numbers[0]), (_JUMP_GT, 1, 0, numbers[-1]), _ALLOWED, _REFUSED]
    if len(numbers) == 1:
        decided = _checks(names[0], allow_fork, signals_are_scoped)
        return [(_JUMP_EQ, 0, len(decided), numbers[0]), *decided, _REFUSED]
    middle = len(numbers) // 2
    left = _search(numbers[:middle], actions, allow_fork, signals_are_scoped)
    right = _search(numbers[middle:], actions, allow_fork, signals_are_scoped)
    # a conditional jump reaches 255 instructions only: jump over a long jump
    return [(_JUMP_GE, 0, 1, numbers[middle]), (_JUMP, 0, 0, len(left)), *left, *right]


def _checks(name: str, allow_fork: bool, signals_are_scoped: bool) -> list[Instruction]:
    """What decides a call whose arguments matter; ends in a return on every path."""

    def argument(index: int) -> Instruction:
        return (_LOAD, 0, 0, 16 + 8 * index)

    if name == "clone3":  # its flags lie in memory: make libc use clone
        return [(_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    if name == "clone":
        threads_only = [] if allow_fork else [(_JUMP_SET, 1, 0, _CLONE_THREAD), _REFUSED]
        return [argument(0), (_JUMP_SET, 0, 1, _NEW_NAMESPACES), _REFUSED, *threads_only, _ALLOWED]
    if name in ("fork", "vfork"):
        return [_ALLOWED if allow_fork else _REFUSED]
    if name in ("kill", "tgkill"):
        return (
            [_ALLOWED]
            if signals_are_scoped
            else [argument(0), (_JUMP_EQ, 0, 1, os.getpid()), _ALLOWED, _REFUSED]
        )
    if name == "tkill":
        return [_ALLOWED if signals_are_scoped else _REFUSED]
    if name == "prctl":
        return [
            argument(0),
            (_JUMP_EQ, 1, 0, _PR_SET_NAME),
            (_JUMP_EQ, 0, 1, _PR_GET_NAME),
            _ALLOWED,
            _REFUSED,
        ]
    if name == "prlimit64":
        return [argument(0), (_JUMP_EQ, 0, 1, 0), _ALLOWED, _REFUSED]
    if name == "socketpair":
        return [argument(0), (_JUMP_EQ, 0, 1, 1), _ALLOWED, _REFUSED]
    if name == "ioctl":  # TCGETS, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX, TIOCGWINSZ: what Python asks of files
        asked = [0x5401, 0x541B, 0x5421, 0x5451, 0x5450, 0x5413]
        return [argument(1), *[x for r in asked for x in ((_JUMP_EQ, 0, 1, r), _ALLOWED)], _REFUSED]
    return [_ALLOWED]
