"""Reading GPUs through NVML. The library is replaced at its seam, `import pynvml`, by recorded readings."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from estimators.errors import BadInput
from estimators.hardware import hardware_from_name, read_hardware

GIB = 1 << 30


class NVMLError(Exception):
    """As in the library: one subclass per return code, named NVMLError_*."""


def error(name: str, text: str) -> type[Exception]:
    return type(f"NVMLError_{name}", (NVMLError,), {"__str__": lambda self: text})


LIBRARY_NOT_FOUND = error("LibraryNotFound", "NVML Shared Library Not Found")
NO_PERMISSION = error("NoPermission", "Insufficient Permissions")
NOT_SUPPORTED = error("NotSupported", "Not Supported")
DRIVER_NOT_LOADED = error("DriverNotLoaded", "Driver Not Loaded")
MISMATCH = error("LibRmVersionMismatch", "RM has detected an NVML/RM version mismatch.")

A100 = {
    "name": "NVIDIA A100-SXM4-80GB",
    "uuid": "GPU-aaaa1111-0000-0000-0000-000000000000",
    "total": 80 * GIB,
    "free": 79 * GIB,
    "processes": [],
    "migs": [],
}


def fake_nvml(
    devices: list[dict[str, Any]],
    init: type[Exception] | None = None,
    modern: bool = True,
    as_bytes: bool = False,
) -> types.ModuleType:
    """A module that answers like nvidia-ml-py on a machine with these devices."""
    module = types.ModuleType("pynvml")

    def text(value: str) -> Any:
        return value.encode() if as_bytes else value

    def initialise() -> None:
        if init is not None:
            raise init()

    def memory(handle: dict[str, Any], version: int | None = None) -> Any:
        if handle["total"] is None:
            raise NOT_SUPPORTED()
        return types.SimpleNamespace(total=handle["total"], free=handle["free"], used=0)

    def processes(handle: dict[str, Any]) -> list[Any]:
        return [types.SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used, _ in handle["processes"]]

    def process_name(pid: int) -> Any:
        for device in devices:
            for other, _, name in device["processes"]:
                if other == pid:
                    return text(name)
        raise NOT_SUPPORTED()

    def mig(handle: dict[str, Any], index: int) -> dict[str, Any]:
        if index >= len(handle["migs"]):
            raise NOT_SUPPORTED()
        return {**A100, **handle["migs"][index]}

    module.nvmlInit = initialise
    module.nvmlShutdown = lambda: None
    module.nvmlDeviceGetCount = lambda: len(devices)
    module.nvmlDeviceGetHandleByIndex = lambda index: devices[index]
    module.nvmlDeviceGetName = lambda handle: text(handle["name"])
    module.nvmlDeviceGetUUID = lambda handle: text(handle["uuid"])
    module.nvmlDeviceGetMemoryInfo = memory
    module.nvmlDeviceGetComputeRunningProcesses = processes
    module.nvmlDeviceGetGraphicsRunningProcesses = lambda handle: []
    module.nvmlSystemGetProcessName = process_name
    module.nvmlDeviceGetMigMode = lambda handle: (int(bool(handle["migs"])), 0)
    module.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7
    module.nvmlDeviceGetMigDeviceHandleByIndex = mig
    if modern:
        module.nvmlMemory_v2 = 0x02000028
    return module


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(*devices: dict[str, Any], **options: Any) -> None:
        monkeypatch.setitem(
            sys.modules, "pynvml", fake_nvml([{**A100, **device} for device in devices], **options)
        )

    return install


TWO = ({}, {"uuid": "GPU-bbbb2222-0000-0000-0000-000000000000", "free": 40 * GIB})


def test_free_memory_counts_not_total(nvml: Any) -> None:
    nvml(*TWO)
    hardware = read_hardware()
    assert hardware.kind == "gpu"
    assert [device.free_bytes // GIB for device in hardware.devices] == [79, 40]
    assert hardware.message == "2 × NVIDIA A100-SXM4-80GB, 40.0 GiB free each"


def test_other_processes_are_named(nvml: Any) -> None:
    nvml({"processes": [(4242, 30 * GIB, "/usr/bin/ollama"), (os.getpid(), GIB, "python")]})
    hardware = read_hardware()
    (process,) = hardware.devices[0].processes
    assert (process.name, process.pid, process.used_bytes) == ("ollama", 4242, 30 * GIB)
    assert "GPU 0: ollama (process 4242) holds 30.0 GiB" in hardware.notes


def test_a_process_whose_memory_the_driver_hides_is_zero(nvml: Any) -> None:
    """WSL and containers report None, or all bits set."""
    nvml({"processes": [(7, None, "a"), (8, 0xFFFFFFFFFFFFFFFF, "b")]})
    assert [process.used_bytes for process in read_hardware().devices[0].processes] == [0, 0]


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (LIBRARY_NOT_FOUND, "no NVIDIA driver was found"),
        (NO_PERMISSION, "no permission on /dev/nvidia*"),
        (DRIVER_NOT_LOADED, "installed but not loaded"),
        (MISMATCH, "differ in version"),
        (RuntimeError, "NVML does not start"),
    ],
)
def test_why_there_is_no_gpu(nvml: Any, failure: type[Exception], sentence: str) -> None:
    nvml({}, init=failure)
    hardware = read_hardware()
    assert hardware.kind == "cpu"
    assert sentence in hardware.message
    assert hardware.message.endswith("training would run on the CPU")


def test_without_the_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in read_hardware().message


def test_unified_memory_takes_the_machines(nvml: Any) -> None:
    """DGX Spark (GB10) and Jetson: memory info is not supported, and the machine's memory is the GPU's."""
    nvml({"name": "NVIDIA GB10", "total": None})
    hardware = read_hardware()
    assert hardware.devices[0].total_bytes == hardware.ram_bytes
    assert any("shares the machine's memory" in note for note in hardware.notes)


def test_the_old_package_is_named(nvml: Any) -> None:
    """The package `pynvml` 11 installs the same module without version 2 of the memory info, and returns
    bytes."""
    nvml({}, modern=False, as_bytes=True)
    hardware = read_hardware()
    assert hardware.devices[0].name == "NVIDIA A100-SXM4-80GB"
    assert any("pip uninstall pynvml" in note for note in hardware.notes)


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        ("1", [1]),
        ("1,0", [1, 0]),
        ("GPU-bbbb2222-0000-0000-0000-000000000000", [1]),
        ("GPU-bbbb", [1]),
        ("0,7,1", [0]),
        ("", []),
        ("-1", []),
        ("GPU-cccc", []),
        ("0,0", [0]),
    ],
)
def test_cuda_visible_devices(
    nvml: Any, monkeypatch: pytest.MonkeyPatch, visible: str, indices: list[int]
) -> None:
    nvml(*TWO)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    hardware = read_hardware()
    assert [device.index for device in hardware.devices] == indices
    if not indices:
        assert "hides every GPU" in hardware.message


MIGS = {
    "migs": [
        {"uuid": "MIG-1111", "total": 10 * GIB, "free": 9 * GIB},
        {"uuid": "MIG-2222", "total": 20 * GIB, "free": 19 * GIB},
    ]
}


def test_a_mig_slice_by_id(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(MIGS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2222")
    (device,) = read_hardware().devices
    assert (device.uuid, device.free_bytes) == ("MIG-2222", 19 * GIB)


def test_a_divided_gpu_is_its_first_slice(nvml: Any) -> None:
    """CUDA shows a process one slice; the whole card's 80 GiB would be a lie."""
    nvml(MIGS)
    (device,) = read_hardware().devices
    assert device.total_bytes == 10 * GIB


def test_a_mig_mode_gpu_without_slices(nvml: Any) -> None:
    nvml({"migs": [{"uuid": "MIG-1", "total": None, "free": None}]})
    assert any("MIG mode without a slice" in note for note in read_hardware().notes)


def test_one_unreadable_gpu_does_not_hide_the_other(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(*TWO)
    module = sys.modules["pynvml"]
    good = module.nvmlDeviceGetHandleByIndex

    def handle(index: int) -> Any:
        if index == 0:
            raise NO_PERMISSION()
        return good(index)

    monkeypatch.setattr(module, "nvmlDeviceGetHandleByIndex", handle)
    hardware = read_hardware()
    assert [device.index for device in hardware.devices] == [1]
    assert any("GPU 0 cannot be opened" in note for note in hardware.notes)


def test_reading_never_raises(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call of the library fails, there is an answer."""
    nvml(*TWO)
    module = sys.modules["pynvml"]
    for name in [name for name in vars(module) if name.startswith("nvml") and name != "nvmlMemory_v2"]:
        original = getattr(module, name)

        def broken(*args: Any, **kwargs: Any) -> Any:
            raise NOT_SUPPORTED()

        monkeypatch.setattr(module, name, broken)
        assert read_hardware().message
        monkeypatch.setattr(module, name, original)


def test_a_named_gpu() -> None:
    hardware = hardware_from_name("h100 80gb", 4, nodes=2)
    assert len(hardware.devices) == 8
    assert hardware.devices[0].name == "H100 80GB"
    assert hardware.nodes == 2
    assert "not measured" in hardware.message


def test_an_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(BadInput, match='did you mean "RTX 4090"'):
        hardware_from_name("RTX 4099", 1)
