"""Bytes of optimizer state, and what one optimizer step needs on top."""

from __future__ import annotations

from estimators.record import Record, unknown
from estimators.units import BYTES_PER_ELEMENT
from estimators.workload import Dtype


class Optimizer(Record):
    """How many bytes an optimizer keeps per trainable parameter."""

    states: float
    """Moments with the dtype of the parameter (AdamW keeps 2)."""
    state_bytes: float | None = None
    """Bytes per parameter where they do not follow the parameter's dtype (8-bit states)."""
    step_copies: float = 0.0
    """Temporary copies of all trainable parameters during one step."""
    paged: bool = False
    """States live in CUDA's unified memory and move to the host when memory is short."""
    source: str


EIGHT_BIT = 2 * (1 + 4 / 256)
"""Two 8-bit moments, each with one fp32 scale per block of 256. Source: arXiv:2110.02861, section 2; the
block size is bitsandbytes' (functional.py, `blocksize=256`). Tensors under 4,096 elements stay fp32: not
counted."""

OPTIMIZERS: dict[str, Optimizer] = {
    "adamw_torch_fused": Optimizer(states=2, source="torch/optim/adamw.py, fused: no temporaries"),
    "adamw_torch": Optimizer(
        states=2, step_copies=1, source="torch/optim/adamw.py, foreach: one set of temporaries (traced)"
    ),
    "adamw_torch_foreach": Optimizer(
        states=2, step_copies=1, source="torch/optim/adamw.py, foreach: one set of temporaries (traced)"
    ),
    "adamw_8bit": Optimizer(states=2, state_bytes=EIGHT_BIT, source="bitsandbytes, AdamW 8-bit"),
    "adamw_bnb_8bit": Optimizer(states=2, state_bytes=EIGHT_BIT, source="bitsandbytes, AdamW 8-bit"),
    "paged_adamw_8bit": Optimizer(
        states=2, state_bytes=EIGHT_BIT, paged=True, source="bitsandbytes, paged AdamW 8-bit"
    ),
    "paged_adamw_32bit": Optimizer(states=2, state_bytes=8, paged=True, source="bitsandbytes, paged AdamW"),
    "sgd": Optimizer(states=0, source="torch/optim/sgd.py without momentum"),
    "adafactor": Optimizer(
        states=0,
        state_bytes=0.02,
        step_copies=1,
        source="arXiv:1804.04235: factored second moment; measured: none",
    ),
    "lion_32bit": Optimizer(states=1, source="bitsandbytes, Lion"),
    "lion_8bit": Optimizer(states=1, state_bytes=EIGHT_BIT / 2, source="bitsandbytes, Lion 8-bit"),
}

ALIASES = {
    "adamw": "adamw_torch_fused",
    "adamw_hf": "adamw_torch",
    "adamw8bit": "adamw_8bit",
    "adamw_fused": "adamw_torch_fused",
    "adamw_torch_8bit": "adamw_8bit",
    "paged_adamw": "paged_adamw_32bit",
    "pagedadamw8bit": "paged_adamw_8bit",
    "lion": "lion_32bit",
}


def find_optimizer(name: str) -> Optimizer:
    """The optimizer that TrainingArguments calls `name`; BadInput names the nearest one otherwise."""
    key = ALIASES.get(name.lower(), name.lower())
    if key not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[key]


def state_bytes(optimizer: Optimizer, params: float, dtype: Dtype) -> float:
    """Bytes of optimizer state for `params` trainable parameters of `dtype`.

    torch's AdamW keeps its moments in the parameter's dtype: bf16 → 4 B, fp32 → 8 B per parameter.
    """
    if optimizer.state_bytes is not None:
        return params * optimizer.state_bytes
    return params * optimizer.states * BYTES_PER_ELEMENT[dtype]


def step_bytes(optimizer: Optimizer, params: float, dtype: Dtype) -> float:
    """Bytes that exist only while the optimizer steps."""
    return params * optimizer.step_copies * BYTES_PER_ELEMENT[dtype]
