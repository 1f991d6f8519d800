"""One unit for memory everywhere: GiB, 2**30 bytes."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

BYTES_PER_ELEMENT: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}


def gib(num_bytes: float) -> str:
    """`num_bytes` as text in GiB: "12.3 GiB"; small values keep three digits ("0.0042 GiB")."""
    value = num_bytes / GIB
    if abs(value) >= 10 or value == 0:
        return f"{value:.1f} GiB"
    if abs(value) >= 0.095:
        return f"{value:.2f} GiB"
    return f"{value:.2g} GiB"


def duration(seconds: float) -> str:
    """`seconds` as text in the unit a person would choose: "40 s", "12 min", "3.5 h", "2.1 days"."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
