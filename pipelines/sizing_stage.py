"""Whether a training stage fits, how long it takes and what it costs.

Training vocabulary comes in here (method, tuning, trainer arguments) and leaves as a Workload and a Setup,
which is all the estimators know.
"""

from __future__ import annotations

import math
from typing import Literal

from estimators.engine import engine_bytes
from estimators.errors import BadInput
from estimators.gpus import find_gpu, guess_gpu, price_of
from estimators.hardware import Device, Hardware, hardware_from_name
from estimators.memory import Memory, Slack, estimate, trainable_params
from estimators.models import find_shape
from estimators.record import Record
from estimators.shapes import ModelShape
from estimators.sharding import REDUCE_BUCKET, ddp_bucket_bytes
from estimators.throughput import Schedule, Seconds, Speed, cpu_speed, gpu_speed, stage_seconds
from estimators.units import GIB, MIB, gib
from estimators.workload import Dtype, Setup, Workload
from pipelines.sizing_request import (
    REFERENCE_BETA,
    SIGNAL_SHARE,
    WORKLOADS,
    StageRequest,
    whole_groups,
)

Verdict = Literal["fits", "tight", "does-not-fit"]


class Assumption(Record):
    """A number that nobody measured for this run, or a choice that was not given."""

    name: str
    value: str
    source: str


class StageSize(Record):
    """Bytes per GPU, seconds and dollars of one stage."""

    peak_bytes: int
    low_bytes: int
    high_bytes: int
    allocated_bytes: int
    """In tensors: what `torch.cuda.max_memory_allocated` would show."""
    reserved_bytes: int
    """Held by the allocator: `torch.cuda.max_memory_reserved`."""
    components: dict[str, int]
    """Of the phase with the highest peak; they sum to `peak_bytes`."""
    phase: str
    phases: dict[str, int]
    """Allocated bytes of every phase of a step."""
    available_bytes: int
    verdict: Verdict
    headroom_bytes: int
    """Available minus peak."""
    seconds: dict[str, float]
    time_components: dict[str, float]
    usd: dict[str, float] | None
    steps: int
    num_gpus: int
    params: int
    trainable_params: int
    assumptions: tuple[Assumption, ...]
    device: str
    problem: str | None = None
    """Why it cannot run even where its bytes would fit: vLLM's share is too small. Makes it
    `does-not-fit`."""


def hardware_for(request: StageRequest, hardware: Hardware) -> Hardware:
    """The hardware that is planned for: GPUs of the kind that `request.gpu` names, else what is at hand.

    Cards of that kind that are here count with what is free on them; otherwise they are taken as idle.
    """
    if request.gpu is None:
        return hardware
    wanted = find_gpu(request.gpu)
    same = tuple(device for device in hardware.devices if guess_gpu(device.name) == wanted)
    if same:
        return hardware.model_copy(update={"devices": same})
    return hardware_from_name(request.gpu, request.num_gpus or 1)


class Resolved:
    """A request with nothing left open, and what was assumed on the way."""

    def __init__(self, request: StageRequest, hardware: Hardware) -> None:
        self.request = request
        self.shape: ModelShape = find_shape(request.model)
        self.assumptions: list[Assumption] = []
        hardware = hardware_for(request, hardware)
        self.hardware = hardware
        self.on_gpu = hardware.kind == "gpu"
        self.num_gpus = request.num_gpus or (len(hardware.devices) if self.on_gpu else 1)
        self.workload = self._workload()
        self.setup = self._setup()
        self.schedule = self._schedule()

    def assume(self, name: str, value: object, source: str) -> None:
        self.assumptions.append(Assumption(name=name, value=str(value), source=source))

    def _workload(self) -> Workload:
        request = self.request
        base = WORKLOADS[request.method]
        beta = request.beta if request.beta is not None else REFERENCE_BETA[request.method]
        reference = request.reference
        if reference == "auto":
            compares = beta > 0 and (base.reference != "none" or base.rollouts != "none")
            reference = "none" if not compares else "copy" if request.tuning == "full" else "adapter-off"
            if compares:
                self.assume(
                    "reference",
                    reference,
                    "TRL 1.16: a copy for full tuning, the adapter switched off for LoRA",
                )
        rollouts = "none"
        if base.rollouts != "none":
            rollouts = "hf" if request.rollouts == "auto" else request.rollouts
            if self.hardware.kind == "cpu" and rollouts == "vllm-colocate":
                raise BadInput("rollouts vllm-colocate needs a GPU; without one use hf or vllm-server")
        return base.model_copy(
            update={
                "reference": reference,
                "rollouts": rollouts,
                "rescores_rollouts": base.trains and rollouts.startswith("vllm"),
            }
        )

    def _lengths(self) -> tuple[int, int]:
        """Prompt and completion tokens of one sequence."""
        request = self.request
        total, prompt, completion = (
            request.max_length,
            request.max_prompt_length,
            request.max_completion_length,
        )
        if prompt is not None and completion is not None:
            if total is not None and total < prompt + completion and self.workload.rollouts == "none":
                completion = max(1, total - prompt)
            return prompt, completion
        if self.workload.rollouts != "none":
            if completion is None:
                completion = (
                    512 if total is None else max(1, total - (prompt if prompt is not None else total // 4))
                )
                self.assume("max_completion_length", completion, "not given; TRL's default is 512")
            if prompt is None:
                prompt = 512 if total is None else max(0, total - completion)
                self.assume("max_prompt_length", prompt, "not given; longest prompt assumed")
            return prompt, completion
        if total is None:
            total = (prompt or 0) + completion if completion is not None else 1024
            if completion is None:
                self.assume("max_length", total, "not given; TRL's default")
        if self.workload.scores_prompt:
            return 0, total
        if completion is not None:
            return max(0, total - completion), min(completion, total)
        if prompt is None:
            self.assume("scored tokens", total, "prompt length not given: every token counted as completion")
        return (prompt, max(1, total - prompt)) if prompt is not None else (0, total)

    def _setup(self) -> Setup:
        request = self.request
        full = request.tuning == "full"
        prompt, completion = self._lengths()
        precision = request.precision
        if precision == "auto":
            if self.on_gpu:
                gpu = guess_gpu(self.hardware.devices[0].name)
                precision = "bf16" if gpu is None or gpu.bf16_flops else "fp16"
            else:
                precision = "fp32"
            self.assume(
                "precision", precision, "bf16 autocast where the GPU has it (TRL's default); fp32 on a CPU"
            )
        weights = request.weights_dtype
        if weights == "auto":
            narrow: Dtype = "fp16" if precision == "fp16" else "bf16"
            weights = "fp32" if full or not self.on_gpu else narrow
            reason = (
                "fp32 where the weights are trained (TRL's default), the narrow type where they are frozen"
            )
            self.assume("weights_dtype", weights, reason)
        loss = request.loss
        if loss == "auto":
            loss = "fused"
            self.assume("loss", loss, "TRL 1.16 computes log-probabilities in tiles (add_fused_lm_head)")
        prepared = request.tuning == "qlora" and bool(request.kbit_prepared)
        if request.tuning == "qlora" and request.kbit_prepared is None:
            prepared = loss.startswith("full-logits")
            self.assume(
                "prepare_model_for_kbit_training",
                "called" if prepared else "not called",
                "TRL 1.16 does not call it and casts adapters to bf16; older stacks did",
            )
        experts_4bit = request.tuning == "qlora" and bool(request.experts_4bit)
        if request.tuning == "qlora" and request.experts_4bit is None and self.shape.groups["experts"]:
            experts_4bit = loss.startswith("full-logits")
            self.assume(
                "experts",
                "in 4 bits" if experts_4bit else "not in 4 bits",
                "transformers 5 fuses experts, and bitsandbytes packs nn.Linear only; older ones are packed",
            )
        attention = request.attention if request.attention != "auto" else "sdpa"
        if attention == "sdpa" and not self.shape.sdpa:
            attention = "eager"
            self.assume("attention", "eager", f"transformers has no SDPA for {self.shape.model_type}")
        per_generation, accumulation = self._accumulation()
        if not self.on_gpu and request.tuning == "qlora":
            raise BadInput("tuning qlora needs an NVIDIA GPU (bitsandbytes); without one use lora or full")
        return Setup(
            tuning=request.tuning,
            lora_rank=request.lora_rank,
            lora_targets=request.lora_targets,
            weights_dtype=weights,
            adapter_dtype="bf16" if request.tuning == "qlora" and not prepared else "fp32",
            kbit_prepared=prepared,
            double_quantisation=request.double_quantisation,
            experts_4bit=experts_4bit,
            autocast="none" if precision in ("fp32", "none") else precision,
            micro_batch=request.micro_batch,
            prompt_length=prompt,
            completion_length=completion,
            gradient_checkpointing=request.gradient_checkpointing,
            gradient_accumulation=accumulation,
            optimizer=request.optimizer,
            loss=loss,
            attention=attention,
            sharding=request.sharding,
            num_gpus=self.num_gpus,
            on_gpu=self.on_gpu,
            generation_batch=request.micro_batch * per_generation,
            vllm_memory_utilization=request.vllm_memory_utilization,
            vllm_sleep=request.vllm_enable_sleep_mode,
        )

    def _accumulation(self) -> tuple[int, int]:
        """Micro-batches per generation and per optimizer step, with whole groups where groups are sampled."""
        request = self.request
        if not self.workload.trains or self.workload.rollouts == "none":
            per_generation = request.steps_per_generation or request.gradient_accumulation
            return per_generation, request.gradient_accumulation
        per_generation, accumulation = whole_groups(request, self.num_gpus)
        given = (request.steps_per_generation, request.gradient_accumulation)
        for name, was, is_ in (
            ("steps_per_generation", given[0] or per_generation, per_generation),
            ("gradient_accumulation", given[1], accumulation),
        ):
            if was != is_:
                held = f"{was} micro-batches of {request.micro_batch} on {self.num_gpus} GPUs"
                self.assume(name, is_, f"{held} hold no whole groups of {request.num_generations}")
        return per_generation, accumulation

    def _schedule(self) -> Schedule:
        request = self.request
        steps = request.steps if self.workload.trains else 1
        if steps is None:
            steps = 100
            self.assume("steps", steps, "not given; time and cost are for this many optimizer steps")
        useful = request.dynamic_sampling_rate
        if useful is not None:
            self.assume("groups with signal", f"{useful:.0%}", "given; other groups are sampled again")
        elif request.method == "dapo":
            useful = SIGNAL_SHARE
            self.assume(
                "groups with signal",
                f"{useful:.0%}",
                "DAPO's recipe samples 3 prompts for each it trains on; others are sampled again",
            )
        return Schedule(
            steps=steps,
            gradient_accumulation=self.setup.gradient_accumulation,
            micro_batches_per_generation=max(1, self.setup.generation_batch // request.micro_batch),
            useful_share=useful or 1.0,
            eval_completions=-(-request.eval_completions // self.num_gpus),
            eval_tokens=request.eval_tokens,
            eval_batch=request.eval_batch if self.workload.trains else request.micro_batch,
        )

    def devices(self) -> list[Device]:
        """The GPUs that are used: those with the most free memory."""
        return sorted(self.hardware.devices, key=lambda device: -device.free_bytes)[: self.num_gpus]

    def assume_sharding(self) -> None:
        """What is taken for granted about several GPUs."""
        setup = self.setup
        if setup.num_gpus == 1 or not self.workload.trains:
            return
        if setup.sharding == "none":
            buckets = ddp_bucket_bytes(self.shape, setup)
            source = "DistributedDataParallel's second copy of the gradients; in the high estimate only"
            self.assume("gradient buckets", f"{buckets / GIB:.2f} GiB", source)
        elif setup.sharding == "fsdp":
            source = "accelerate's FSDP2, a unit per layer, freed after forward; run on fake tensors"
            self.assume("sharding", "FSDP2", source)
            if setup.gradient_accumulation > 1:
                self.assume("gradients of earlier micro-batches", "whole", "accelerate's no_sync, FSDP2")
        else:
            source = "DeepSpeed's default reduce_bucket_size; from its source (0.19.8), not measured"
            self.assume("reduce bucket", f"{REDUCE_BUCKET:,} elements", source)
        if setup.tuning == "qlora" and setup.sharding in ("zero3", "fsdp"):
            source = "without bnb_4bit_quant_storage=bfloat16, 4-bit weights stay whole on every GPU"
            self.assume("4-bit weights", "sharded", source)

    def slack(self) -> Slack:
        if not self.on_gpu:
            self.assume(
                "process", "0.75 GiB", "Python, torch, transformers and TRL loaded; measured on Linux"
            )
            return Slack(context_bytes=0.75 * GIB, workspace_bytes=0, likely=0.05, high=0.3, caching=False)
        gpu = guess_gpu(self.devices()[0].name)
        context = gpu.context_bytes if gpu else 0.5 * GIB
        architecture = gpu.architecture if gpu else "Hopper"
        workspace = 64 * MIB if architecture in ("Hopper", "Blackwell") else 16.25 * MIB
        self.assume("CUDA context", f"{context / GIB:.2f} GiB", "measured for T4, assumed for other GPUs")
        source = "fitted to replays of CUDA's caching allocator over traced steps"
        self.assume("allocator slack", "follows the largest blocks", source)
        if self.workload.rollouts == "hf":
            self.assume(
                "rollouts' cached blocks",
                "given back when memory is short",
                "a cache that grows token by token leaves blocks that it outgrew",
            )
        return Slack(context_bytes=context, workspace_bytes=workspace)

    def mean_setup(self) -> Setup:
        """The setup with mean lengths, which time follows."""
        request, setup = self.request, self.setup
        completion = setup.completion_length
        if self.workload.rollouts != "none":
            completion = min(completion, request.mean_completion_length or completion)
            prompt = setup.prompt_length
            if request.mean_length is not None:
                prompt = min(prompt, max(0, request.mean_length - completion))
        elif request.mean_length is not None and setup.length:
            prompt = round(setup.prompt_length * min(1.0, request.mean_length / setup.length))
            completion = max(1, min(setup.length, request.mean_length) - prompt)
        else:
            prompt = setup.prompt_length
        if (prompt, completion) == (setup.prompt_length, setup.completion_length):
            return setup
        return setup.model_copy(update={"prompt_length": prompt, "completion_length": completion})

    def speed(self, measured: Speed | None) -> Speed:
        if measured is not None:
            speed = measured
        elif not self.on_gpu:
            speed = cpu_speed(self.hardware.cpu_cores)
        else:
            gpu = guess_gpu(self.devices()[0].name)
            if gpu is None:
                gpu = find_gpu("A100 80GB")
                self.assume("speed", "as A100", f"{self.devices()[0].name} is not in the table of GPUs")
            half = self.setup.autocast != "none" or self.setup.weights_dtype != "fp32"
            speed = gpu_speed(gpu, half)
        self.assume("speed", f"{speed.flops / 1e12:.3g} TFLOP/s", speed.source)
        return speed

    def vllm_shortage(self) -> str | None:
        """Why vLLM cannot start in its share of the card, or None."""
        if self.workload.rollouts != "vllm-colocate":
            return None
        self.assume(
            "vllm_max_model_length",
            self.setup.length,
            "prompt and completion; left unset, vLLM asks for room for the model's whole context"
            + (f" of {self.shape.max_positions:,} tokens" if self.shape.max_positions else ""),
        )
        if self.request.tuning == "qlora":
            self.assume("vLLM's weights", "in 4 bits", "TRL 1.16 starts vLLM with quantization=bitsandbytes")
        share, (need, least) = self.request.vllm_memory_utilization, self.vllm_need()
        if share >= least:
            return None
        text = (
            f"vLLM's share of the card, {gib(share * self.available()[1])} at vllm_memory_utilization "
            f"{share:g}, is less than the {gib(need)} that it must hold to start"
        )
        if least > 1:
            return f"{text}, and so is the whole card: use rollouts hf or vllm-server"
        return f"{text}; the least vllm_memory_utilization is {least:g}"

    def vllm_need(self) -> tuple[int, float]:
        """Least bytes that vLLM must hold, and the least share of the card for them, in hundredths."""
        need = sum(engine_bytes(self.shape, self.setup).values())
        return round(need), math.ceil(100 * need / self.available()[1]) / 100

    def available(self) -> tuple[int, int]:
        """Free and total bytes of the fullest device used."""
        if not self.on_gpu:
            return self.hardware.ram_free_bytes, self.hardware.ram_bytes
        chosen = self.devices()
        return min(device.free_bytes for device in chosen), min(device.total_bytes for device in chosen)


def size_stage(request: StageRequest, hardware: Hardware, speed: Speed | None = None) -> StageSize:
    """Memory, time and cost of one stage on this hardware. BadInput for a model that cannot be found.

    `speed` is one that was measured (`pipelines.sizing_calibration`); without it the table of GPUs or the
    number of cores stands for it.
    """
    resolved = Resolved(request, hardware)
    slack, speed = resolved.slack(), resolved.speed(speed)
    available, total = resolved.available()
    shape, workload, setup = resolved.shape, resolved.workload, resolved.setup
    memory = estimate(shape, workload, setup, slack, total)
    problem = resolved.vllm_shortage()
    resolved.assume_sharding()
    seconds = stage_seconds(shape, workload, resolved.mean_setup(), resolved.schedule, speed)
    if resolved.on_gpu and resolved.num_gpus > len(resolved.hardware.devices):
        resolved.assume(
            "GPUs", resolved.num_gpus, f"asked for; {len(resolved.hardware.devices)} are here, taken as alike"
        )
    return StageSize(
        peak_bytes=memory.peak,
        low_bytes=memory.low,
        high_bytes=memory.high,
        allocated_bytes=memory.allocated,
        reserved_bytes=memory.reserved,
        components=memory.components,
        phase=memory.phase,
        phases=memory.phases,
        available_bytes=available,
        verdict="does-not-fit" if problem else _verdict(memory, available),
        headroom_bytes=available - memory.peak,
        seconds={"low": round(seconds.low, 1), "high": round(seconds.high, 1)},
        time_components={name: round(value, 2) for name, value in seconds.components.items()},
        usd=_usd(resolved, seconds),
        steps=resolved.schedule.steps,
        num_gpus=resolved.num_gpus,
        params=shape.params,
        trainable_params=trainable_params(shape, setup) if workload.trains else 0,
        assumptions=tuple(resolved.assumptions),
        device=resolved.devices()[0].name if resolved.on_gpu else f"CPU, {hardware.cpu_cores} cores",
        problem=problem,
    )


def _verdict(memory: Memory, available: int) -> Verdict:
    """`fits` where even the high end does, `tight` where only the likely peak does."""
    if memory.high <= available:
        return "fits"
    return "tight" if memory.peak <= available else "does-not-fit"


def _usd(resolved: Resolved, seconds: Seconds) -> dict[str, float] | None:
    """Rent for the stage's range of hours: the fast end at the low price, the slow end at the high one."""
    if not resolved.on_gpu:
        return None
    gpu = guess_gpu(resolved.devices()[0].name)
    price = price_of(gpu.name) if gpu else None
    if price is None:
        return None
    hours = resolved.num_gpus / 3600
    resolved.assume(
        "price",
        f"{price.low:.2f} to {price.high:.2f} USD per GPU-hour",
        f"{price.offers} offers up to {price.newest}: {price.source}",
    )
    return {
        "low": round(seconds.low * hours * price.low, 2),
        "high": round(seconds.high * hours * price.high, 2),
    }
