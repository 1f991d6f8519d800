"""A request with nothing left open: the workload, the setup and the schedule that follow from it, and what
was assumed on the way.

Training vocabulary comes in here (method, tuning, trainer arguments) and leaves as a Workload and a Setup,
which is all the estimators know.
"""

from __future__ import annotations

import math

from estimators.adapters import target_names, unmatched
from estimators.engine import engine_bytes
from estimators.errors import BadInput
from estimators.gpus import GPU, find_gpu, guess_gpu
from estimators.hardware import Device, Hardware, hardware_from_memory, hardware_from_name
from estimators.models import BNB_4BIT, find_shape, stored_quantisation
from estimators.optimizers import find_optimizer
from estimators.record import Record
from estimators.shapes import ModelShape
from estimators.sharding import REDUCE_BUCKET, ddp_bucket_bytes
from estimators.slack import Slack
from estimators.terms import term
from estimators.throughput import Schedule, Speed, cpu_speed, gpu_speed
from estimators.units import GIB, MIB, gib
from estimators.workload import Dtype, LoraTargets, Setup, Workload
from pipelines.sizing_request import (
    MAX_ROUNDS,
    REFERENCE_BETA,
    WORKLOADS,
    StageRequest,
    signal_share,
    whole_groups,
)


class Assumption(Record):
    """A number that nobody measured for this run, or a choice that was not given."""

    name: str
    value: str
    source: str


def hardware_for(request: StageRequest, hardware: Hardware) -> Hardware:
    """The hardware that is planned for: the memory that is stated, GPUs of the named kind, or what is here.

    Cards of that kind that are here count with what is free on them; otherwise they are taken as idle.
    """
    if request.gpu_memory_gib is not None:
        return hardware_from_memory(request.gpu, round(request.gpu_memory_gib * GIB), request.num_gpus or 1)
    if request.gpu is None:
        return hardware
    wanted = find_gpu(request.gpu)
    same = tuple(device for device in hardware.devices if guess_gpu(device.name) == wanted)
    if same:
        return hardware.model_copy(update={"devices": same})
    return hardware_from_name(request.gpu, request.num_gpus or 1)


NEVER_LINEAR = ("gpt_oss", "granitemoe")
"""Mixtures whose experts never were `nn.Linear`, so that bitsandbytes never packed them."""

DEFAULTS: dict[str, str] = {
    "method": "not given",
    "tuning": "not given",
    "micro_batch": "not given; transformers' own default is 8",
    "gradient_accumulation": "not given; the default of transformers",
    "gradient_checkpointing": "not given; TRL's default",
    "optimizer": "not given; the default of transformers",
    "sharding": "not given",
    "lora_rank": "not given; PEFT's own default is 8",
    "lora_targets": "not given; PEFT's own default is q and v",
    "double_quantisation": "not given; TRL's default is off",
    "num_generations": "not given; TRL's default",
    "vllm_memory_utilization": "not given; TRL's default",
    "vllm_enable_sleep_mode": "not given; TRL's default",
}
"""Keys whose default moves the number, and where the default is from."""


class Resolved:
    """A request with nothing left open, and what was assumed on the way."""

    def __init__(self, request: StageRequest, hardware: Hardware) -> None:
        self.assumptions: list[Assumption] = []
        self.shape: ModelShape = find_shape(request.model)
        self.request = request = self._as_stored(request)
        self.hardware = hardware = hardware_for(request, hardware)
        self.on_gpu = hardware.kind == "gpu"
        self.num_gpus = request.num_gpus or (len(hardware.devices) if self.on_gpu else 1)
        self.workload = self._workload()
        self.setup = self._setup()
        self.schedule = self._schedule()
        self._defaults()

    def assume(self, name: str, value: object, source: str) -> None:
        self.assumptions.append(Assumption(name=name, value=str(value), source=source))

    def _as_stored(self, request: StageRequest) -> StageRequest:
        """The request with the weights as `quantization_config` says that they are stored."""
        stored = stored_quantisation(request.model)
        if stored is None:
            return request
        if stored != BNB_4BIT:
            self.assume("quantization_config", stored, "not sized in that form: weights in the dtype below")
            return request
        if request.tuning == "full" and "tuning" in request.model_fields_set:
            raise BadInput(
                f"{request.model} has its weights in 4 bits (quantization_config), which cannot be trained; "
                "use tuning qlora, or the model that it was made from"
            )
        if request.tuning != "qlora":
            self.assume("tuning", "qlora", "its quantization_config says that the weights are in 4 bits")
        return request.model_copy(update={"tuning": "qlora"})

    def _defaults(self) -> None:
        """Names every default that was used and that moves the number."""
        request, rollouts = self.request, self.workload.rollouts
        used = ["method", "tuning", "micro_batch"]
        if self.workload.trains:
            used += ["gradient_accumulation", "gradient_checkpointing", "optimizer"]
        if self.num_gpus > 1:
            used.append("sharding")
        if request.tuning != "full" and self.workload.trains:
            used += ["lora_rank", "lora_targets"]
        if request.tuning == "qlora":
            used.append("double_quantisation")
        if rollouts != "none" and self.workload.trains:
            used.append("num_generations")
        if rollouts == "vllm-colocate":
            used += ["vllm_memory_utilization", "vllm_enable_sleep_mode"]
        if self.workload.trains and find_optimizer(request.optimizer).paged:
            source = "they move to the host's memory when the GPU's is short; the low end is without them"
            self.assume("paged optimizer states", "on the GPU", source)
        named = {item.name for item in self.assumptions}
        for name in used:
            if name not in request.model_fields_set and name not in named:
                value = getattr(request, name)
                shown = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
                self.assume(name, shown, DEFAULTS[name])

    def _workload(self) -> Workload:
        request = self.request
        base = WORKLOADS[request.method]
        beta = request.beta if request.beta is not None else REFERENCE_BETA[request.method]
        reference = request.reference
        if reference == "adapter-off" and request.tuning == "full":
            raise BadInput("reference adapter-off needs an adapter; use copy or precomputed, or tuning lora")
        if reference not in ("auto", "none") and base.reference == "none" and base.rollouts == "none":
            raise BadInput(f"{request.method} compares with no reference; leave reference out")
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
            if request.rollouts == "auto":
                self.assume("rollouts", rollouts, "not given; TRL's default is to generate with the model")
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
        if prompt is not None and self.workload.rollouts == "none":
            prompt = self._cut_prompt(prompt, total, completion)
        if prompt is not None and completion is not None:
            if total is not None and self.workload.rollouts == "none":
                completion = min(completion, total - prompt)
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

    def _cut_prompt(self, prompt: int, total: int | None, completion: int | None) -> int:
        """A prompt that leaves a token for the completion: TRL cuts both together to `max_length`."""
        most = total if total is not None else 1024 if completion is None else None
        if most is None or prompt < most:
            return prompt
        self.assume("max_prompt_length", most - 1, f"{prompt} given, cut: max_length is {most}")
        return most - 1

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
            wide = full or not self.on_gpu or request.precision == "fp32"
            weights = "fp32" if wide else narrow
            reason = (
                "fp32 where the weights are trained (TRL's default), the narrow type where they are frozen"
            )
            if wide and not full and self.on_gpu:
                reason = "precision is fp32"
            self.assume("weights_dtype", weights, reason)
        loss = request.loss
        if loss == "auto":
            loss = "fused"
            self.assume("loss", loss, "TRL 1.16 computes log-probabilities in tiles (add_fused_lm_head)")
        elif loss in ("liger", "cce"):
            kind = {"liger": "Liger's kernel", "cce": "Cut Cross-Entropy"}[loss]
            loss = "fused"
            self.assume("loss", loss, f"{kind} never holds all logits either; sized as TRL's, not studied")
        self._check_scaler(weights, precision)
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
            experts_4bit = loss.startswith("full-logits") and self.shape.model_type not in NEVER_LINEAR
            self.assume(
                "experts",
                "in 4 bits" if experts_4bit else "not in 4 bits",
                "transformers 5 fuses experts, and bitsandbytes packs nn.Linear only; older ones are packed",
            )
        attention = request.attention
        if attention == "auto":
            attention = "sdpa"
            if self.shape.sdpa:
                self.assume("attention", "sdpa", "not given; the default of transformers")
        if attention == "sdpa" and not self.shape.sdpa:
            attention = "eager"
            self.assume("attention", "eager", f"transformers has no SDPA for {self.shape.model_type}")
        self._note_attention(attention)
        adapter = request.adapter_dtype
        if adapter == "auto":
            adapter = "bf16" if request.tuning == "qlora" and not prepared else "fp32"
            if not full and self.workload.trains:
                self.assume("adapter_dtype", adapter, "PEFT makes adapters fp32; TRL 1.16 makes QLoRA's bf16")
        per_generation, accumulation = self._accumulation()
        if not self.on_gpu and request.tuning == "qlora":
            raise BadInput("tuning qlora needs an NVIDIA GPU (bitsandbytes); without one use lora or full")
        return Setup(
            tuning=request.tuning,
            lora_rank=request.lora_rank,
            lora_targets=self._targets(),
            weights_dtype=weights,
            adapter_dtype=adapter,
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

    def _check_scaler(self, weights: str, precision: str) -> None:
        """fp16 weights that are trained: torch's GradScaler refuses their gradients."""
        if self.request.tuning != "full" or weights != "fp16" or not self.workload.trains:
            return
        if precision == "fp16":
            raise BadInput(
                "fp16 weights cannot be trained under fp16 autocast (GradScaler does not unscale fp16 "
                "gradients); use weights_dtype fp32, or precision bf16 with weights_dtype bf16"
            )
        self.assume("fp16 weights", "trained as they are", "no loss scaling: small gradients become zero")

    def _note_attention(self, attention: str) -> None:
        if attention != "flash" or not self.on_gpu:
            return
        gpu = guess_gpu(self.hardware.devices[0].name)
        if gpu and gpu.architecture in ("Pascal", "Volta", "Turing"):
            self.assume("attention", "flash", f"FlashAttention 2 has no kernel for {gpu.name}; sdpa has")

    def _targets(self) -> LoraTargets:
        """The LoRA targets; BadInput where the model has no module of the names given."""
        targets = self.request.lora_targets
        strange = unmatched(self.shape, targets) if self.request.tuning != "full" else []
        if strange:
            known = ", ".join(target_names(self.shape, "all-linear"))
            if len(strange) == len(targets):
                raise BadInput(f"{self.request.model} has no module {', '.join(strange)}; it has {known}")
            self.assume("lora_targets", ", ".join(targets), f"no module is called {', '.join(strange)}")
        return targets

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
                held = was * request.micro_batch * self.num_gpus
                reason = f"{held} completions are no whole number of groups of {request.num_generations}"
                self.assume(name, is_, reason)
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
            useful = signal_share(MAX_ROUNDS)
            self.assume(
                "groups with signal",
                f"{useful:.0%}",
                "over a run in which it falls from all to none; other groups are sampled again",
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
            return Slack(
                context_bytes=0.75 * term(GIB), workspace_bytes=0, likely=0.05, high=0.3, caching=False
            )
        gpu = guess_gpu(self.devices()[0].name.partition(" MIG ")[0])
        context = (gpu.context_bytes if gpu else GIB // 2) / MIB * term(MIB)
        architecture = gpu.architecture if gpu else "Hopper"
        workspace = (64 if architecture in ("Hopper", "Blackwell") else 16.25) * term(MIB)
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
            gpu, share = self._card()
            half = self.setup.autocast != "none" or self.setup.weights_dtype != "fp32"
            speed = gpu_speed(gpu, half, share)
        self.assume("speed", f"{speed.flops / 1e12:.3g} TFLOP/s", speed.source)
        return speed

    def _card(self) -> tuple[GPU, float]:
        """The card whose speed counts, and the share of it that the device is: a MIG slice has a part."""
        device = self.devices()[0]
        whole, mig, _ = device.name.partition(" MIG ")
        gpu = guess_gpu(whole)
        if gpu is None:
            self.assume("speed", "as A100", f"{whole} is not in the table of GPUs")
            return find_gpu("A100 80GB"), 1.0
        if not mig:
            return gpu, 1.0
        share = min(1.0, device.total_bytes / gpu.memory_bytes)
        self.assume("MIG slice", f"{share:.0%} of the speed", f"its share of the memory of {gpu.name}")
        return gpu, share

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
