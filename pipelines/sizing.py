"""Sizing of training stages: `size_stage` for one request, `fit_stage` for the changes that make it fit."""

from __future__ import annotations

from pipelines.sizing_calibration import Calibration, calibrate, calibrated_speed
from pipelines.sizing_fit import (
    Change,
    FitResult,
    fit_stage,
    savings,
    shortfall,
    smallest_hardware,
    valid_groups,
)
from pipelines.sizing_request import WORKLOADS, StageRequest
from pipelines.sizing_resolve import Assumption
from pipelines.sizing_stage import StageSize, Verdict, size_stage
from pipelines.sizing_trace import Trace, trace_stage

__all__ = [
    "WORKLOADS",
    "Assumption",
    "Calibration",
    "Change",
    "FitResult",
    "StageRequest",
    "StageSize",
    "Trace",
    "Verdict",
    "calibrate",
    "calibrated_speed",
    "fit_stage",
    "savings",
    "shortfall",
    "size_stage",
    "smallest_hardware",
    "trace_stage",
    "valid_groups",
]
