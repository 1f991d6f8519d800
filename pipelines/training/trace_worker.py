"""The peak of a real training step, found without a GPU: the step runs on fake tensors that hold no data.

`python -m pipelines.training.trace_worker` reads one JSON request on stdin and prints one JSON answer. The
model, the adapter, the checkpointing, the fused output head and AdamW are those of transformers, PEFT, TRL
and torch; only the kernels do nothing. Every tensor's storage is counted from its birth to its death, as
CUDA's allocator would (multiples of 512 bytes).

What differs from a GPU, and how it is met:
- fake tensors look like tracing to transformers, which then builds an S×S mask: that detection is switched
off; - TRL's Triton kernels have no fake implementation: the two tile functions are replaced by ones that do
nothing, which is what they allocate;
- boolean indexing needs data: the scored positions are the last of each sequence and are cut by slicing;
- autocast is entered for the CPU; layer norms and powers, which only CUDA's list runs in fp32, are widened
here; - dropout inside attention makes the CPU kernel fall back to S×S scores, so every dropout is set to 0;
- bitsandbytes has none either: a matrix in 4 bits is replaced by one that allocates what bitsandbytes' code
does; - grouped matrix products take bf16 only on a CPU, so a mixture of experts with fp32 weights cannot be
traced.
"""

from __future__ import annotations

import contextlib
import json
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from pipelines.training.allocator import CachingAllocator

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Tracker(TorchDispatchMode):
    """Counts the bytes of all live storages, and their peak in every phase."""

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__()
        self.allocator = CachingAllocator(capacity)
        self.live = 0
        self.seen: set[int] = set()
        self.phase = "build"
        self.peaks: dict[str, int] = {}
        self.last_op = ""
        self.peak_ops: dict[str, str] = {}

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.seen or storage.nbytes() == 0:
            return
        size = -(-storage.nbytes() // 512) * 512
        self.seen.add(key)
        self.allocator.allocate(key, size)
        self.live += size
        weakref.finalize(storage, self._drop, key, size)
        if self.live > self.peaks.get(self.phase, 0):
            self.peaks[self.phase] = self.live
            self.peak_ops[self.phase] = self.last_op

    def _drop(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.allocator.free(key)
        self.live -= size

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Counts peaks under the name `phase`."""
        before, self.phase = self.phase, phase
        self.peaks[phase] = max(self.peaks.get(phase, 0), self.live)
        try:
            yield
        finally:
            self.phase = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.last_op = str(func)
        for leaf in tree_iter(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out


def widen_as_cuda() -> None:
    """Makes layer norms and powers run in fp32 under autocast, as CUDA's list has it and the CPU's has not.

    The functions themselves are replaced: a mode would not reach what checkpointing recomputes.
    """

    def widened(function: Any) -> Any:
        def wide(*args: Any, **kwargs: Any) -> Any:
            if torch.is_autocast_enabled("cpu"):
                args = tuple(_float(arg) for arg in args)
                kwargs = {name: _float(value) for name, value in kwargs.items()}
            return function(*args, **kwargs)

        return wide

    torch.nn.functional.layer_norm = widened(torch.nn.functional.layer_norm)
    torch.pow = widened(torch.pow)


def _float(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


class Multiply4Bit(torch.autograd.Function):
    """What bitsandbytes' `matmul_4bit` allocates: the dequantised weight, and nothing for backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, outputs: int) -> torch.Tensor:
        ctx.packed, ctx.shape = packed, (outputs, x.shape[-1])
        weight = torch.empty(ctx.shape, dtype=x.dtype)
        return torch.nn.functional.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        weight = torch.empty(ctx.shape, dtype=gradient.dtype)
        return gradient @ weight, None, None


class Linear4Bit(torch.nn.Linear):
    """A matrix in 4 bits that computes as bitsandbytes' `Linear4bit`: cast in, multiply, cast back."""

    def __init__(self, inner: torch.nn.Linear, double: bool) -> None:
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features = inner.in_features, inner.out_features
        count = inner.in_features * inner.out_features
        scales = count // 64 + 4 * count // (64 * 256) if double else 4 * count // 64
        self.loaded_dtype = inner.weight.dtype
        self.weight = torch.nn.Parameter(
            torch.empty((count // 2, 1), dtype=torch.uint8, device="meta"), False
        )
        self.register_buffer("absmax", torch.empty(scales, dtype=torch.uint8, device="meta"))
        self.bias = inner.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = Multiply4Bit.apply(x.to(torch.bfloat16), self.weight, self.out_features)
        if self.bias is not None:
            out = out + self.bias.to(out.dtype)
        return out.to(x.dtype)


def quantise(model: Any, prepared: bool, double: bool) -> None:
    """Puts the layers' matrices into 4 bits; `prepared` makes the rest fp32, as PEFT's preparation does."""
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear and child is not head:
                setattr(parent, name, Linear4Bit(child, double))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if prepared and parameter.dtype.is_floating_point:
            parameter.loaded_dtype = parameter.dtype
            parameter.data = parameter.data.float()


def build(request: dict[str, Any]) -> torch.nn.Module:
    """The model on the meta device, with its adapter and the fused head as TRL would attach them."""
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    values = {key: value for key, value in request["config"].items() if key not in ("torch_dtype", "dtype")}
    config = CONFIG_MAPPING[values.pop("model_type")](**values)
    config.use_cache = False
    for name in ("attention_dropout", "hidden_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config,
            dtype=DTYPES[request["weights_dtype"]],
            attn_implementation="eager" if request["attention"] == "eager" else None,
        )
    if request["gradient_checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if request["tuning"] == "qlora":
        quantise(model, request["kbit_prepared"], request["double_quantisation"])
    if request["tuning"] != "full":
        from peft import LoraConfig, get_peft_model

        names = request["lora_modules"]
        rank = request["lora_rank"]
        adapter = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names, task_type="CAUSAL_LM")
        if request["gradient_checkpointing"]:
            model.enable_input_require_grads()
        model = get_peft_model(model, adapter, autocast_adapter_dtype=request["adapter_dtype"] == "fp32")
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(DTYPES[request["adapter_dtype"]])
    model.train()
    return model


def materialise(model: torch.nn.Module) -> None:
    """Replaces every meta parameter and buffer by a fake CPU one; tied ones stay tied.

    Weights come as they are loaded: a matrix for 4 bits is there in its wide form until it is packed, and
    what PEFT's preparation makes fp32 is cast after that. It matters to what the allocator keeps.
    """
    made: dict[int, torch.Tensor] = {}
    owners: list[tuple[torch.nn.Module, str, torch.nn.Parameter]] = []
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                owners.append((module, name, parameter))
        for name, buffer in list(module._buffers.items()):
            if buffer is not None and buffer.device.type == "meta":
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device="cpu")
    for module, name, parameter in owners:
        if id(parameter) in made:
            continue
        wide = None
        if isinstance(module, Linear4Bit) and name == "weight":
            shape = (module.out_features, module.in_features)
            wide = torch.empty(shape, dtype=module.loaded_dtype, device="cpu")
        dtype = getattr(parameter, "loaded_dtype", parameter.dtype)
        made[id(parameter)] = torch.empty(parameter.shape, dtype=dtype, device="cpu")
        del wide
    for _, _, parameter in owners:
        if made[id(parameter)].dtype != parameter.dtype:
            made[id(parameter)] = made[id(parameter)].to(parameter.dtype)
    kept = {
        key: torch.nn.Parameter(made[key], requires_grad=parameter.requires_grad)
        for key, parameter in {id(parameter): parameter for _, _, parameter in owners}.items()
    }
    for module, name, parameter in owners:
        module._parameters[name] = kept[id(parameter)]


def silence_kernels() -> None:
    """What a GPU would do in kernels is replaced by what it allocates: nothing."""
    widen_as_cuda()
    import transformers.masking_utils as masking
    from transformers.integrations import sdpa_attention

    masking.find_packed_sequence_indices = lambda *args, **kwargs: None
    sdpa_attention.use_gqa_in_sdpa = lambda *args, **kwargs: True
    with contextlib.suppress(ImportError):
        import trl.kernels.chunked_logprob as kernels

        kernels._forward_tile = lambda *args, **kwargs: None
        kernels._backward_tile = lambda *args, **kwargs: None
        kernels._addmm_fp32 = lambda *args, **kwargs: None


def scored_log_probs(model: Any, ids: torch.Tensor, scored: int) -> torch.Tensor:
    """Log-probabilities of the last `scored` tokens of each sequence, through TRL's fused head."""
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    hidden = inner.base_model(input_ids=ids, use_cache=False).last_hidden_state
    head = inner.get_output_embeddings()
    picked = hidden[:, -scored - 1 : -1] if scored < ids.shape[1] else hidden
    log_probs = ChunkedLogProbFunction.apply(
        picked.reshape(-1, hidden.shape[-1]),
        head.weight,
        head.bias,
        ids[:, -scored:].reshape(-1),
        1.0,
        _CHUNKED_LOGPROB_CHUNK_SIZE,
        None,
        1.0,
        ("log_probs", "entropy"),
    )[0]
    return log_probs.view(ids.shape[0], -1)


def loss_of(
    model: Any, reference: Any, ids: torch.Tensor, request: dict[str, Any]
) -> tuple[torch.Tensor, Any]:
    """The loss of one micro-batch, after the forward pass of the reference where there is one.

    Returns also what a loop that keeps the model's outputs through backward holds.
    """
    if request["loss"].startswith("full-logits"):
        outputs = model(input_ids=ids, labels=ids, use_cache=False)
        return outputs.loss, outputs if request["loss"] == "full-logits-kept" else None
    log_probs = scored_log_probs(model, ids, request["scored_length"])
    compared = request["reference"]
    if compared in ("adapter-off", "copy") and request["sequences_per_example"] == 2:
        with torch.no_grad():
            if compared == "copy":
                scored_log_probs(reference, ids, request["scored_length"])
            else:
                with model.disable_adapter():
                    scored_log_probs(model, ids, request["scored_length"])
    return -log_probs.float().mean(), None


def optimizer_of(model: torch.nn.Module, request: dict[str, Any]) -> torch.optim.Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    foreach = request["optimizer"] in ("adamw_torch", "adamw_torch_foreach")
    return torch.optim.AdamW(trained, foreach=foreach, fused=not foreach)


def build_both(request: dict[str, Any]) -> tuple[Any, Any]:
    """Policy and reference copy (or None) on the meta device."""
    reference: Any = None
    policy = build(request)
    if request["reference"] == "copy":
        reference = build({**request, "tuning": "full", "gradient_checkpointing": False}).eval()
        reference.requires_grad_(False)
    return policy, reference


def trace(request: dict[str, Any]) -> dict[str, Any]:
    """Peak allocated bytes of every phase of the second training step."""
    model, reference = build_both(request)
    tracker = Tracker(request.get("capacity"))
    with FakeTensorMode(allow_non_fake_inputs=True), tracker:
        materialise(model)
        if reference is not None:
            materialise(reference)
        static = tracker.live
        optimizer = optimizer_of(model, request)
        rows = request["micro_batch"] * request["sequences_per_example"]
        ids = torch.zeros((rows, request["length"]), dtype=torch.long)
        autocast = (
            torch.autocast("cpu", DTYPES[request["autocast"]])
            if request["autocast"] != "none"
            else contextlib.nullcontext()
        )
        for iteration in range(2):
            if iteration == 1:
                tracker.peaks.clear()
            for _ in range(2 if request["gradient_accumulation"] > 1 else 1):
                with tracker.during("forward"), autocast:
                    loss, outputs = loss_of(model, reference, ids, request)
                with tracker.during("backward"):
                    loss.backward()
                del loss, outputs
            with tracker.during("optimizer step"):
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            resident = tracker.live
    peaks = {phase: peak for phase, peak in tracker.peaks.items() if phase != "build"}
    return {
        "phases": peaks,
        "peak_bytes": max(peaks.values()),
        "reserved_bytes": tracker.allocator.most_reserved,
        "weights_bytes": static,
        "resident_bytes": resident,
        "operations": {phase: tracker.peak_ops.get(phase, "") for phase in peaks},
        "params": sum(p.numel() for p in model.parameters()),
        "trainable_params": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }


def answer_requests(trace_one: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Prints the traces of the requests on stdin; one that cannot be traced is answered with its error."""
    import logging
    import os
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    request = json.loads(sys.stdin.read())
    requests = request if isinstance(request, list) else [request]
    silence_kernels()
    answers = []
    for one in requests:
        try:
            answers.append(trace_one(one))
        except Exception as error:
            if os.environ.get("ADVISOR_DEBUG"):
                raise
            answers.append({"error": f"{type(error).__name__}: {str(error)[:400]}"})
    print(json.dumps(answers if isinstance(request, list) else answers[0]))  # noqa: T201


if __name__ == "__main__":
    answer_requests(trace)
