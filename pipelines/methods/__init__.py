"""Training methods, one module per trainer family. A new one is a module and a line here."""

from pipelines.methods.base import Method, Setting
from pipelines.methods.dpo import DPO
from pipelines.methods.grpo import DAPO, GRPO
from pipelines.methods.sft import SFT

METHODS: dict[str, Method] = {method.name: method for method in (SFT, DPO, GRPO, DAPO)}

__all__ = ["METHODS", "Method", "Setting"]
