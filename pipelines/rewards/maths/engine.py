"""Equality of two mathematical answers, through math-verify. Runs in a worker process."""

from __future__ import annotations

from typing import Any


def judge(gold: str, pred: str) -> float | None:
    """1.0 where `pred` equals `gold`, 0.0 where not, None where `gold` cannot be read."""
    from math_verify import parse, verify

    wanted: Any = parse(f"${gold}$", parsing_timeout=None)
    if not wanted:
        return None
    found: Any = parse(f"${pred}$", parsing_timeout=None)
    return 1.0 if found and verify(wanted, found, timeout_seconds=None) else 0.0
