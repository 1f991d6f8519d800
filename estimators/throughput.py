"""Seconds of one training stage: what is computed, how fast this machine computes, and what every step costs
beside.

Letters: P parameters a token is multiplied with, N tokens, S sequence length, L layers, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from estimators.adapters import trainable_params
from estimators.gpus import GPU
from estimators.memory import trainable_dtype
from estimators.shapes import ModelShape
from estimators.units import BYTES_PER_ELEMENT
from estimators.workload import Setup, Workload


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast one device works. Every number is an assumption until `--calibrate` measures it."""

    flops: float
    """FLOP/s that training reaches, for a wide model; narrow ones reach less."""
    bandwidth: float
    """Bytes per second of weights and cache that decoding reaches."""
    layer_seconds: float
    """Least seconds per layer and micro-step, forward and backward: kernel launches."""
    decode_flops: float
    """FLOP/s that decoding reaches."""
    start_seconds: float
    """From the start of a process to its first step."""
    decode_layer_seconds: float
    """Least seconds per layer and generated token."""
    step_seconds: float
    """Seconds per optimizer step that no model causes: data, logging, callbacks."""
    low: float
    """Factor on the likely time for the low end of the range."""
    high: float
    source: str


ARCHITECTURE_FACTOR = {
    "Turing": 0.45, "Volta": 0.6, "Ampere": 1.0, "Ada": 0.95, "Hopper": 0.7, "Blackwell": 0.55,
    "CDNA2": 0.6, "CDNA3": 0.5, "CDNA4": 0.5, "Pascal": 0.6,
}  # fmt: skip
"""Share of the peak that is reached against Ampere's. From published speeds: A100 35 to 53 %, RTX 3090 and
4090 37 to 42 %, H100 17 to 39 %, B200 16 %, T4 13 %."""

PEAK_SHARE = 0.62
"""Share of an Ampere card's dense peak that an infinitely wide model reaches; a fit to Qwen LoRA on A100."""
HALF_WIDTH = 1500
"""Hidden size at which half of that is reached; the same fit (35 % at H=2048, 48 % at 4096, 53 % at 5120)."""


def gpu_speed(gpu: GPU, half_precision: bool, share: float = 1.0) -> Speed:
    """What a GPU of the table is assumed to reach, or a slice that is `share` of it."""
    peak = share * (max(gpu.bf16_flops, gpu.fp16_flops) if half_precision else gpu.fp32_flops)
    factor = ARCHITECTURE_FACTOR.get(gpu.architecture, 0.6)
    return Speed(
        flops=peak * PEAK_SHARE * factor,
        bandwidth=gpu.bandwidth * 0.6 * share,
        layer_seconds=4.5e-3,
        decode_layer_seconds=0.8e-3,
        decode_flops=peak * PEAK_SHARE * factor,
        start_seconds=12.0,
        step_seconds=0.05,
        low=0.6,
        high=1.9,
        source=f"assumed from the peak of {gpu.name} and published speeds; narrow it with --calibrate",
    )


def cpu_speed(cores: int) -> Speed:
    """What CPU cores are assumed to reach in fp32."""
    return Speed(
        flops=cores * 60e9,
        bandwidth=8e9,
        layer_seconds=1.0e-3,
        decode_layer_seconds=0.6e-3,
        decode_flops=cores * 5e9,
        start_seconds=12.0,
        step_seconds=0.02,
        low=0.4,
        high=2.5,
        source=f"assumed 60 GFLOP/s for each of {cores} cores; narrow it with --calibrate",
    )


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long a stage runs. Counts per GPU."""

    steps: int
    gradient_accumulation: int = 1
    micro_batches_per_generation: int = 1
    """Micro-batches whose completions are sampled together."""
    useful_share: float = 1.0
    """Share of groups that carry a signal; dynamic sampling samples the others again."""
    eval_completions: int = 0
    eval_tokens: int = 0
    eval_batch: int = 64
    """Completions that an evaluation samples at once."""
    checkpoints: int = 1


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds of a stage by what they are spent on (likely), and the range of their sum."""

    components: dict[str, float] = field(default_factory=dict)
    low: float = 0.0
    high: float = 0.0


def attention_flops(shape: ModelShape, length: int) -> float:
    """Forward FLOPs per token of scores and values: 2 products × 2 × width × positions, half of them
    causal."""
    return sum(
        block.count * 2.0 * (block.q_width + block.out_width) * min(length, block.window or length) / 2
        for block in shape.blocks
        if block.mixer != "recurrent"
    )


def train_flops_per_token(shape: ModelShape, setup: Setup) -> float:
    """FLOPs of one trained token: forward 2P, gradients of activations 2P, of weights 2P (full) or none
    (LoRA).

    Checkpointing repeats the forward pass of the layers.
    """
    head = shape.vocab * shape.hidden
    layers = shape.active_params - head
    attention = attention_flops(shape, setup.length)
    factor = 3.0 if setup.tuning == "full" else 2.0
    again = 1.0 if setup.gradient_checkpointing else 0.0
    head_factor = factor + (1.0 if setup.loss in ("fused", "chunked") else 0.0)
    return (factor + again) * 2 * layers + head_factor * 2 * head + (3.0 + again) * attention


def width_factor(shape: ModelShape, on_gpu: bool) -> float:
    """Share of the full speed that matrices of this width reach."""
    if not on_gpu:
        return shape.hidden / (shape.hidden + 32)
    return shape.hidden / (shape.hidden + HALF_WIDTH)


def decode_seconds(
    shape: ModelShape, setup: Setup, speed: Speed, sequences: int, new_tokens: int, fast: bool
) -> float:
    """Seconds to sample `new_tokens` for `sequences` prompts at once.

    Each token moves the weights once and every sequence's cache, and multiplies every sequence with the
    weights; the slower of both counts, after the launches of each layer. `fast` is an inference
    engine.
    """
    if not sequences or not new_tokens:
        return 0.0
    element = BYTES_PER_ELEMENT[setup.weights_dtype] if setup.autocast == "none" else 2
    weights = shape.active_params * (element if setup.tuning != "qlora" else 0.6)
    mean_length = setup.prompt_length + new_tokens / 2
    cache = shape.kv_elements_per_token * element * mean_length * sequences
    flops = 2.0 * shape.active_params * sequences
    compute = flops / speed.decode_flops
    launches = shape.num_layers * speed.decode_layer_seconds * (0.1 if fast else 1.0)
    token = launches + max((weights + cache) / speed.bandwidth, compute)
    prompt = 2.0 * shape.active_params * sequences * setup.prompt_length / speed.flops
    return new_tokens * token + prompt / width_factor(shape, setup.on_gpu)


def stage_seconds(
    shape: ModelShape, workload: Workload, setup: Setup, schedule: Schedule, speed: Speed
) -> Seconds:
    """How long a stage takes on every GPU's share of the work, and on what the time goes."""
    tokens = setup.micro_batch * workload.sequences_per_example * setup.length
    reached = speed.flops * width_factor(shape, setup.on_gpu)
    floor = shape.num_layers * speed.layer_seconds * (2.0 if setup.tuning == "qlora" else 1.0)
    slower = 1.25 if setup.tuning == "qlora" else 1.0
    micro = max(tokens * train_flops_per_token(shape, setup) * slower / reached, floor)
    forward = max(
        tokens * (2.0 * shape.active_params + attention_flops(shape, setup.length)) * slower / reached,
        floor / 4,
    )
    micro_steps = schedule.steps * schedule.gradient_accumulation
    parts = {"training": micro * micro_steps} if workload.trains else {}
    if workload.trains and workload.reference in ("adapter-off", "copy", "precomputed"):
        parts["reference"] = forward * micro_steps
    if workload.trains and workload.rollouts != "none":
        if workload.rescores_rollouts:
            parts["rescoring"] = forward * micro_steps
        sequences = setup.micro_batch * schedule.micro_batches_per_generation
        rounds = micro_steps / schedule.micro_batches_per_generation / max(schedule.useful_share, 0.05)
        fast = workload.rollouts.startswith("vllm")
        once = decode_seconds(shape, setup, speed, sequences, setup.completion_length, fast)
        parts["rollouts"] = once * rounds
    if schedule.eval_completions and schedule.eval_tokens:
        batch = min(schedule.eval_completions, schedule.eval_batch)
        once = decode_seconds(shape, setup, speed, batch, schedule.eval_tokens, False)
        parts["evaluation"] = once * schedule.eval_completions / batch
    if workload.trains:
        parts["trainer overhead"] = speed.step_seconds * schedule.steps
        parts["optimizer and communication"] = schedule.steps * _step_seconds(shape, setup, speed)
    parts["start, loading and saving"] = _loading_seconds(shape, setup, schedule, speed)
    total = sum(parts.values())
    return Seconds(
        components=parts,
        low=total * speed.low,
        high=total * speed.high,
    )


def _step_seconds(shape: ModelShape, setup: Setup, speed: Speed) -> float:
    """The optimizer's pass over the weights, and gradients over the links between GPUs (assumed 100 GB/s)."""
    trained = trainable_params(shape, setup)
    dtype = BYTES_PER_ELEMENT[trainable_dtype(setup)]
    shards = setup.num_gpus if setup.sharding != "none" else 1
    moved = 6 * trained * dtype / shards / speed.bandwidth
    exchanged = 0.0
    if setup.num_gpus > 1:
        exchanged = 2 * trained * dtype / 100e9
        if setup.sharding in ("zero3", "fsdp"):
            exchanged += 2 * 2 * shape.params / 100e9 * setup.gradient_accumulation
    return moved + exchanged


def _loading_seconds(shape: ModelShape, setup: Setup, schedule: Schedule, speed: Speed) -> float:
    """Imports and start, and weights from and to a disk of 1 GB/s (assumed)."""
    size = shape.params * BYTES_PER_ELEMENT[setup.weights_dtype]
    saved = size if setup.tuning == "full" else 0.02 * size
    return speed.start_seconds + (size + schedule.checkpoints * saved) / 1e9
