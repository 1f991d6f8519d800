"""The machine at hand: GPUs through NVML, cores and memory from the system. Reading it never fails.

NVML counts a GPU's memory of all processes, so what can be planned with is what is free, not what the card
has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Literal

from estimators.gpus import find_gpu, guess_gpu, usable_bytes
from estimators.record import Record
from estimators.units import GIB, gib


class GpuProcess(Record):
    """Another process that holds memory of a GPU."""

    name: str
    pid: int
    used_bytes: int


class Device(Record):
    """One GPU, or one MIG slice of one."""

    index: int
    name: str
    uuid: str
    total_bytes: int
    free_bytes: int
    processes: tuple[GpuProcess, ...] = ()


class Hardware(Record):
    """What a plan may use."""

    devices: tuple[Device, ...]
    cpu_cores: int
    ram_bytes: int
    ram_free_bytes: int
    message: str
    """One sentence for people."""
    notes: tuple[str, ...] = ()
    nodes: int = 1

    @property
    def kind(self) -> Literal["gpu", "cpu"]:
        return "gpu" if self.devices else "cpu"


def read_hardware() -> Hardware:
    """This machine. What cannot be read is a sentence in `message` or `notes`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ram, free = read_ram()
    devices, message, notes = _read_devices(ram, free)
    return Hardware(
        devices=tuple(devices),
        cpu_cores=cores,
        ram_bytes=ram,
        ram_free_bytes=free,
        message=message,
        notes=tuple(notes),
    )


def hardware_from_name(gpu: str, count: int, nodes: int = 1) -> Hardware:
    """`count` idle GPUs called `gpu` on each of `nodes` machines; BadInput for a name that is not known.

    Their memory is what CUDA can give out on an idle card, which is less than the driver's total.
    """
    kind = find_gpu(gpu)
    devices = tuple(
        Device(
            index=index,
            name=kind.name,
            uuid=f"planned-{index}",
            total_bytes=usable_bytes(kind),
            free_bytes=usable_bytes(kind),
        )
        for index in range(max(count, 1) * max(nodes, 1))
    )
    many = f"{len(devices)} × " if len(devices) > 1 else ""
    return Hardware(
        devices=devices,
        cpu_cores=8 * len(devices),
        ram_bytes=2 * sum(device.total_bytes for device in devices),
        ram_free_bytes=2 * sum(device.total_bytes for device in devices),
        message=f"{many}{kind.name} with {gib(kind.memory_bytes)} each, as named; not measured",
        nodes=max(nodes, 1),
    )


def hardware_from_memory(name: str | None, free_bytes: int, count: int) -> Hardware:
    """`count` GPUs with `free_bytes` of free memory each; `name` need not be a known one."""
    kind = guess_gpu(name) if name else None
    shown = kind.name if kind else name or f"GPU with {gib(free_bytes)}"
    total = hardware_from_name(kind.name, 1).devices[0].total_bytes if kind else free_bytes
    devices = tuple(
        Device(
            index=index,
            name=shown,
            uuid=f"planned-{index}",
            total_bytes=max(total, free_bytes),
            free_bytes=free_bytes,
        )
        for index in range(max(count, 1))
    )
    ram = 2 * free_bytes * len(devices)
    return Hardware(
        devices=devices,
        cpu_cores=8 * len(devices),
        ram_bytes=ram,
        ram_free_bytes=ram,
        message=f"{len(devices)} × {shown} with {gib(free_bytes)} each, as stated; not measured",
    )


def read_ram() -> tuple[int, int]:
    """Bytes of memory, and of those available; a container's limit counts where it is lower."""
    total = available = 0
    try:
        with open("/proc/meminfo", encoding="ascii") as meminfo:
            fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in meminfo if line.split()[1:]}
        total, available = fields.get("MemTotal", 0), fields.get("MemAvailable", fields.get("MemFree", 0))
    except (OSError, ValueError, IndexError):
        try:
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            available = int(total * 0.7)
        except (ValueError, OSError, AttributeError):
            total = available = 8 * GIB
    limit, used = _container_limit()
    if limit is not None and limit < total:
        total = limit
        available = min(available, max(0, limit - used))
    return total, available


def _container_limit() -> tuple[int | None, int]:
    """The cgroup's memory limit and use, or None without a limit."""
    for limit_path, used_path in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(limit_path, encoding="ascii") as handle:
                text = handle.read().strip()
            with open(used_path, encoding="ascii") as handle:
                used = int(handle.read())
            return (None, 0) if text == "max" else (int(text), used)
        except (OSError, ValueError):
            continue
    return None, 0


NO_GPU = "training would run on the CPU"


def _read_devices(ram: int, ram_free: int) -> tuple[list[Device], str, list[str]]:
    """GPUs that a process started here would see, one sentence about them, and notes."""
    try:
        import pynvml
    except ImportError:
        return [], f"the NVML bindings are not installed, so {NO_GPU}; pip install nvidia-ml-py", []
    except Exception as error:
        return [], f"the NVML bindings do not load ({error}), so {NO_GPU}", []
    if not hasattr(pynvml, "nvmlDeviceGetMemoryInfo_v2") and not hasattr(pynvml, "nvmlMemory_v2"):
        note = (
            'the deprecated package "pynvml" hides nvidia-ml-py, so newer fields cannot be read; '
            "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py"
        )
    else:
        note = ""
    notes = [note] if note else []
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return [], f"{_init_problem(error)}, so {NO_GPU}", notes
    try:
        return _list_devices(pynvml, ram, ram_free, notes)
    except Exception as error:
        return [], f"NVML failed ({_text(error)}), so {NO_GPU}", notes
    finally:
        try:
            pynvml.nvmlShutdown()
        except Exception as error:
            notes.append(f"NVML did not shut down cleanly ({_text(error)})")


def _init_problem(error: Exception) -> str:
    """Why NVML does not start, in words."""
    kind = type(error).__name__
    if "LibraryNotFound" in kind:
        where = " (in WSL the driver is the one of Windows)" if _in_wsl() else ""
        return f"no NVIDIA driver was found{where}"
    if "DriverNotLoaded" in kind:
        return "the NVIDIA driver is installed but not loaded"
    if "NoPermission" in kind:
        return "this user may not talk to the NVIDIA driver (no permission on /dev/nvidia*)"
    if "LibRmVersionMismatch" in kind or "version mismatch" in str(error).lower():
        return "the NVIDIA driver and its library differ in version (reboot after the driver's update)"
    return f"NVML does not start ({_text(error)})"


def _in_wsl() -> bool:
    try:
        with open("/proc/version", encoding="ascii", errors="replace") as version:
            return "microsoft" in version.read().lower()
    except OSError:
        return False


def _text(value: object) -> str:
    """NVML's strings are bytes in old bindings and str in new ones."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _list_devices(
    nvml: Any, ram: int, ram_free: int, notes: list[str]
) -> tuple[list[Device], str, list[str]]:
    count = int(nvml.nvmlDeviceGetCount())
    if count == 0:
        return [], f"the NVIDIA driver sees no GPU, so {NO_GPU}", notes
    every: list[Device] = []
    slices: dict[str, Device] = {}
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:
            notes.append(f"GPU {index} cannot be opened ({_text(error)}); it is left out")
            continue
        device = _read_device(nvml, handle, index, ram, ram_free, notes)
        if device is None:
            continue
        every.append(device)
        for mig in _mig_slices(nvml, handle, index, device.name, notes):
            slices[mig.uuid] = mig
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = _visible(visible, every, slices, notes)
    if not chosen:
        if visible is not None:
            return [], f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU, so {NO_GPU}", notes
        return [], f"no GPU can be read, so {NO_GPU}", notes
    for device in chosen:
        for process in device.processes:
            notes.append(
                f"GPU {device.index}: {process.name} (process {process.pid}) holds {gib(process.used_bytes)}"
            )
    kinds = {device.name for device in chosen}
    free = min(device.free_bytes for device in chosen)
    many = f"{len(chosen)} × " if len(chosen) > 1 else ""
    each = " each" if len(chosen) > 1 else ""
    message = f"{many}{' and '.join(sorted(kinds))}, {gib(free)} free{each}"
    for name in sorted(kinds):
        if guess_gpu(re.sub(r" MIG .*", "", name)) is None:
            notes.append(f"{name} is not in the table of GPUs: time is estimated with an assumed speed")
    return chosen, message, notes


def _read_device(
    nvml: Any, handle: Any, index: int, ram: int, ram_free: int, notes: list[str]
) -> Device | None:
    name = _ask(lambda: _text(nvml.nvmlDeviceGetName(handle)), f"GPU {index}")
    uuid = _ask(lambda: _text(nvml.nvmlDeviceGetUUID(handle)), f"unknown-{index}")
    try:
        total, free = _memory(nvml, handle)
    except Exception as error:
        if "NotSupported" in type(error).__name__ or "Not Supported" in str(error):
            # GB10 and Jetson share the machine's memory, and NVML reports none
            notes.append(f"{name} shares the machine's memory; what is free there is taken as free for it")
            total, free = ram, ram_free
        else:
            notes.append(f"memory of GPU {index} ({name}) cannot be read ({_text(error)}); it is left out")
            return None
    return Device(
        index=index,
        name=name,
        uuid=uuid,
        total_bytes=total,
        free_bytes=free,
        processes=tuple(_processes(nvml, handle)),
    )


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """Total and free bytes. Version 2 tells the driver's reserve apart, which nobody can allocate."""
    version = getattr(nvml, "nvmlMemory_v2", None)
    if version is not None:
        try:
            info = nvml.nvmlDeviceGetMemoryInfo(handle, version=version)
            return int(info.total), int(info.free)
        except Exception as error:
            if "NotSupported" in type(error).__name__:
                raise
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return int(info.total), int(info.free)


def _ask(question: Any, otherwise: str) -> str:
    try:
        return str(question())
    except Exception:
        return otherwise


def _processes(nvml: Any, handle: Any) -> Iterable[GpuProcess]:
    """Other processes on the GPU; none where the driver does not tell (containers, WSL)."""
    seen: dict[int, GpuProcess] = {}
    for question in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        try:
            running = getattr(nvml, question)(handle)
        except Exception:
            continue
        for process in running:
            pid, used = int(process.pid), process.usedGpuMemory
            if pid == os.getpid():
                continue
            name = _process_name(nvml, pid)
            size = int(used) if used is not None and 0 <= int(used) < 1 << 62 else 0
            if pid not in seen or seen[pid].used_bytes < size:
                seen[pid] = GpuProcess(name=name, pid=pid, used_bytes=size)
    return seen.values()


def _process_name(nvml: Any, pid: int) -> str:
    try:
        return os.path.basename(_text(nvml.nvmlSystemGetProcessName(pid))) or "a process"
    except Exception:
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
                return comm.read().strip()
        except OSError:
            return "a process"


def _mig_slices(nvml: Any, handle: Any, index: int, name: str, notes: list[str]) -> list[Device]:
    """The MIG slices of a GPU, where it is divided."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
        if not current:
            return []
        most = int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    except Exception:
        return []
    found = []
    for number in range(most):
        try:
            mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            total, free = _memory(nvml, mig)
            uuid = _text(nvml.nvmlDeviceGetUUID(mig))
        except Exception:
            continue
        found.append(
            Device(
                index=index,
                name=f"{name} MIG {total / GIB:.0f}GB",
                uuid=uuid,
                total_bytes=total,
                free_bytes=free,
            )
        )
    if not found:
        notes.append(f"GPU {index} is in MIG mode without a slice; create one with nvidia-smi mig")
    return found


def _visible(
    wanted: str | None, every: list[Device], slices: dict[str, Device], notes: list[str]
) -> list[Device]:
    """The devices that CUDA would show a process: CUDA's rules for CUDA_VISIBLE_DEVICES.

    Entries are indices, UUIDs or unique beginnings of one; the list ends at the first that names nothing. A
    GPU in MIG mode is seen as its first slice.
    """

    def first_slice(device: Device) -> Device:
        own = [mig for mig in slices.values() if mig.index == device.index]
        return own[0] if own else device

    if wanted is None:
        return [first_slice(device) for device in every]
    chosen: list[Device] = []
    by_index = {device.index: device for device in every}
    for entry in (part.strip() for part in wanted.split(",")):
        found: Device | None = None
        if re.fullmatch(r"\d+", entry):
            device = by_index.get(int(entry))
            found = first_slice(device) if device else None
        elif entry.startswith("MIG-"):
            matches = [mig for uuid, mig in slices.items() if uuid.startswith(entry)]
            found = matches[0] if len(matches) == 1 else None
        elif entry and not entry.startswith("-"):
            matches = [device for device in every if device.uuid.startswith(entry)]
            found = matches[0] if len(matches) == 1 else None
        if found is None:
            if entry not in ("", "-1", "NoDevFiles"):
                notes.append(
                    f'CUDA_VISIBLE_DEVICES names "{entry}", which no GPU here has; the rest is ignored'
                )
            break
        if found not in chosen:
            chosen.append(found)
    return chosen
