"""The peak of a real FSDP2 training step on one rank of many, found without a GPU.

`python -m pipelines.training.fsdp_worker` reads one JSON request (or a list of them) on stdin and prints one
JSON answer. Requests are those of `pipelines.training.trace_worker`, and `num_gpus`. The model is wrapped by
accelerate's own `fsdp2_prepare_model`, with the policy that transformers' Trainer gives it; the process group
is torch's fake one, whose collectives allocate what the real ones do and move nothing.

What differs from a GPU: streams do nothing on a CPU. Storages are counted in the order in which Python asks
for and drops them, which is the order `torch.cuda.max_memory_allocated` counts in.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from pipelines.training.trace_worker import Tracker, answer_requests, build_both, materialise, optimizer_of


class ShardTracker(Tracker):
    """A Tracker that looks inside DTensors, and sees storages that FSDP grows and empties."""

    def __init__(self) -> None:
        super().__init__()
        self.resized: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # the operation on the local tensor comes back here
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]  # as on a GPU; its fake implementation makes a second tensor
        return super().__torch_dispatch__(func, types, args, kwargs)

    def add(self, tensor: torch.Tensor) -> None:
        if not is_traceable_wrapper_subclass(tensor):  # a wrapper holds no memory, what it wraps is counted
            super().add(tensor)

    def resize(self, tensor: torch.Tensor, size: int) -> None:
        """`tensor`'s storage holds `size` bytes from now on."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.seen:
            self.add(tensor)
        before = storage.nbytes()
        storage.resize_(size)
        self.live += -(-size // 512) * 512 - -(-before // 512) * 512
        self.resized[key] = size
        if self.live > self.peaks.get(self.phase, 0):
            self.peaks[self.phase] = self.live
            self.peak_ops[self.phase] = f"{self.last_op}, then a gathered parameter"

    def _drop(self, key: int, size: int) -> None:
        held = self.resized.pop(key, None)
        super()._drop(key, size if held is None else -(-held // 512) * 512)

    def watch_resizes(self) -> None:
        """Sends FSDP's own growing and emptying of storages through `resize`."""
        from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group

        def alloc(tensor: torch.Tensor) -> None:
            if tensor.untyped_storage().size() != tensor.numel() * tensor.itemsize:
                self.resize(tensor, tensor.numel() * tensor.itemsize)

        def free(tensor: torch.Tensor) -> None:
            if tensor.untyped_storage().size():
                self.resize(tensor, 0)

        _fsdp_param.alloc_storage = alloc
        _fsdp_param_group.alloc_storage = alloc
        _fsdp_param.free_storage = free


def accelerator_of(mesh: Any, request: dict[str, Any]) -> Any:
    """What accelerate's and TRL's wrapping functions read of an Accelerator, with transformers' defaults for
    `fsdp: true`: FSDP2, one unit per decoder layer, parameters freed after forward."""
    from accelerate.utils import FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=True,
        auto_wrap_policy="transformer_based_wrap",
        cpu_ram_efficient_loading=False,
    )
    mixed = request["autocast"]
    if mixed != "none":
        plugin.set_mixed_precision(mixed)
    return SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision="no" if mixed == "none" else mixed,
        is_main_process=False,
        device=torch.device("cpu"),
        torch_device_mesh={("ranks",): mesh},
        parallelism_config=SimpleNamespace(fsdp_dim_names=("ranks",)),
    )


def build_with_head(request: dict[str, Any]) -> tuple[Any, Any]:
    """Policy and reference copy (or None) on the meta device, with the fused head where it is asked for."""
    from trl.trainer.utils import add_fused_lm_head

    policy, reference = build_both(request)
    if request["loss"] == "fused":
        add_fused_lm_head(policy.get_base_model() if request["tuning"] != "full" else policy)
        if reference is not None:
            add_fused_lm_head(reference)
    return policy, reference


def trace(request: dict[str, Any]) -> dict[str, Any]:
    """Peak allocated bytes of every phase of the second training step, on rank 0."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=request["num_gpus"], store=FakeStore())
    try:
        return _trace(request, init_device_mesh("cpu", (request["num_gpus"],)))
    finally:
        dist.destroy_process_group()


def _trace(request: dict[str, Any], mesh: Any) -> dict[str, Any]:
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model
    from trl.models.utils import prepare_fsdp

    accelerator = accelerator_of(mesh, request)
    model, reference = build_with_head(request)
    tracker = ShardTracker()
    tracker.watch_resizes()
    with FakeTensorMode(allow_non_fake_inputs=True), tracker:
        materialise(model)
        accelerator.state.fsdp_plugin.set_auto_wrap_policy(model)
        model = fsdp2_prepare_model(accelerator, model)
        if reference is not None:
            materialise(reference)
            reference = prepare_fsdp(reference, accelerator)
        shards = tracker.live
        optimizer = optimizer_of(model, request)
        rows = request["micro_batch"] * request["sequences_per_example"]
        ids = torch.zeros((rows, request["length"]), dtype=torch.long)
        inputs: dict[str, Any] = {"input_ids": ids, "labels": ids, "use_cache": False}
        if request["loss"] == "fused":
            inputs["fused_lm_head"] = True
        micro_batches = 2 if request["gradient_accumulation"] > 1 else 1
        for iteration in range(2):
            if iteration == 1:
                tracker.peaks.clear()
            for micro in range(micro_batches):
                # accelerate's no_sync
                model.set_requires_gradient_sync(micro == micro_batches - 1)
                with tracker.during("forward"):
                    loss = model(**inputs).loss
                    if reference is not None:
                        with torch.no_grad():
                            reference(**inputs)
                with tracker.during("backward"):
                    loss.backward()
                del loss
            with tracker.during("optimizer step"):
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            resident = tracker.live
    peaks = {phase: peak for phase, peak in tracker.peaks.items() if phase != "build"}
    return {
        "phases": peaks,
        "peak_bytes": max(peaks.values()),
        "weights_bytes": shards,
        "resident_bytes": resident,
        "operations": {phase: tracker.peak_ops.get(phase, "") for phase in peaks},
        "units": unit_names(model),
    }


def unit_names(model: Any) -> list[str]:
    """The modules that are gathered as units of their own."""
    from torch.distributed.fsdp import FSDPModule

    return [name or "(root)" for name, module in model.named_modules() if isinstance(module, FSDPModule)]


if __name__ == "__main__":
    answer_requests(trace)
