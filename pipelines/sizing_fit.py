"""The cheapest changes that make a stage fit, and the smallest hardware where none do.

The ladder of `pipelines.sizing_ladder` is climbed until a rung fits; then every change that is not needed is
taken back, the dearest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from estimators.errors import DoesNotFit
from estimators.gpus import known_gpus, price_of
from estimators.hardware import Hardware, hardware_from_name
from estimators.record import Record
from estimators.units import gib
from pipelines.sizing_ladder import LADDER, Step, num_gpus
from pipelines.sizing_request import GROUP_METHODS, StageRequest, whole_groups
from pipelines.sizing_resolve import Resolved, hardware_for
from pipelines.sizing_stage import StageSize, size_stage

TRIFLE = 0.005
"""Share of the high estimate below which a saving is not worth naming."""
SHARDED = ("fsdp", "zero3")
MANY_GPUS = ("H100 80GB", "H200", "B200")
NOT_OFFERED = ("CDNA", "Pascal")
"""Architectures that nobody is sent to: not studied, or left by current builds of PyTorch."""


class Change(Record):
    """One change that the fit search made, or could make."""

    what: str
    """The key of the request."""
    from_value: str
    to_value: str
    saves_bytes: int
    """Bytes by which the high estimate would be larger without it, all else equal; 0 where it saves
    nothing."""
    gives_up: str


class FitResult(Record):
    """A request that fits, its size, and what was changed to get there."""

    request: StageRequest
    size: StageSize
    changes: tuple[Change, ...]


def fit_stage(request: StageRequest, hardware: Hardware, keep: Sequence[str] = ()) -> FitResult:
    """The request with the fewest concessions that fits `hardware` at the high estimate.

    `hardware` is replaced by what `request.gpu` names. The effective batch stays, and sampled batches stay
    divisible by the group. Keys named in `keep` are not touched. Where the high estimate fits nowhere but the
    likely one does, that is returned (verdict `tight`). Raises DoesNotFit with the deficit, the cheapest
    changes, and the smallest hardware that would do.
    """
    hardware = hardware_for(request, hardware)
    start, repairs = valid_groups(request, hardware)
    climbed = _climb(start, hardware, keep)
    for wanted in ("fits", "tight"):
        steps = next((s for s, size in climbed if _good(size, wanted)), None)
        if steps is not None:
            return _result(start, _prune(start, steps, hardware, wanted), repairs, hardware)
    raise DoesNotFit(_no_way(start, climbed, hardware, keep))


def valid_groups(request: StageRequest, hardware: Hardware) -> tuple[StageRequest, tuple[Change, ...]]:
    """The request with whole groups per generation, accumulating as little more as that takes.

    TRL requires per-device batch × processes × steps per generation to be divisible by `num_generations`.
    """
    if request.method not in GROUP_METHODS:
        return request, ()
    gpus = num_gpus(request, hardware_for(request, hardware))
    generation, accumulation = whole_groups(request, gpus)
    update: dict[str, int] = {}
    if accumulation != request.gradient_accumulation:
        update["gradient_accumulation"] = accumulation
    if request.steps_per_generation not in (None, generation):
        update["steps_per_generation"] = generation
    at_once = request.micro_batch * gpus
    asked = at_once * (request.steps_per_generation or request.gradient_accumulation)
    reason = f"{asked} completions are no whole number of groups of {request.num_generations}"
    changes = [
        Change(
            what=key,
            from_value=str(getattr(request, key)),
            to_value=str(value),
            saves_bytes=0,
            gives_up=f"an effective batch of {at_once * request.gradient_accumulation}: it is "
            f"{at_once * value} now, because {reason}"
            if key == "gradient_accumulation"
            else f"nothing: {reason}",
        )
        for key, value in update.items()
    ]
    return request.model_copy(update=update), tuple(changes)


def _good(size: StageSize, wanted: str) -> bool:
    return size.verdict == "fits" or (wanted == "tight" and size.verdict == "tight")


def _apply(request: StageRequest, steps: Sequence[Step]) -> StageRequest:
    for step in steps:
        request = step.apply(request)
    return request


def _climb(
    start: StageRequest, hardware: Hardware, keep: Sequence[str] = ()
) -> list[tuple[list[Step], StageSize]]:
    """Every rung's steps so far with its size; ends at the first that fits."""
    steps: list[Step] = []
    climbed = [(list(steps), size_stage(start, hardware))]
    now = start
    for rung in LADDER:
        for step in rung(now, hardware):
            if climbed[-1][1].verdict == "fits":
                return climbed
            changed = step.apply(now)
            if changed == now or any(getattr(changed, key) != getattr(now, key) for key in keep):
                continue
            steps, now = [*steps, step], changed
            climbed.append((list(steps), size_stage(now, hardware)))
    return climbed


def _prune(start: StageRequest, steps: list[Step], hardware: Hardware, wanted: str) -> list[Step]:
    """`steps` without those that are not needed, the dearest tried first; again until none is left, since one
    may be needed only because of another."""
    kept = list(steps)
    for step in reversed(steps):
        fewer = [other for other in kept if other is not step]
        if _good(size_stage(_apply(start, fewer), hardware), wanted):
            kept = fewer
    return kept if len(kept) == len(steps) else _prune(start, kept, hardware, wanted)


def _result(
    start: StageRequest, steps: list[Step], repairs: tuple[Change, ...], hardware: Hardware
) -> FitResult:
    final = _apply(start, steps)
    size = size_stage(final, hardware)
    changes = list(repairs)
    last = {step.what: step for step in steps}
    for what in last:
        without = _apply(start, [step for step in steps if step.what != what])
        saved = size_stage(without, hardware).high_bytes - size.high_bytes
        changes.append(_change(last[what], without, final, saved, hardware))
    return FitResult(request=final, size=size, changes=tuple(changes))


def _change(step: Step, before: StageRequest, after: StageRequest, saved: int, hardware: Hardware) -> Change:
    text = step.gives_up if isinstance(step.gives_up, str) else step.gives_up(before)
    return Change(
        what=step.what,
        from_value=_shown(before, step.what, hardware),
        to_value=_shown(after, step.what, hardware),
        saves_bytes=max(0, saved),
        gives_up=text.format_map(after.model_dump()),
    )


def _shown(request: StageRequest, key: str, hardware: Hardware) -> str:
    """The value of a key, decided where the request leaves it open."""
    value: Any = getattr(request, key)
    if value not in (None, "auto"):
        return f"{value:g}" if isinstance(value, float) else str(value)
    resolved = Resolved(request, hardware)
    setup = resolved.setup
    decided: dict[str, Any] = {
        "max_length": setup.length,
        "max_completion_length": setup.completion_length,
        "steps_per_generation": setup.generation_batch // setup.micro_batch,
        "reference": resolved.workload.reference,
        "rollouts": resolved.workload.rollouts,
        "weights_dtype": setup.weights_dtype,
        "loss": setup.loss,
    }
    return str(decided.get(key, value))


def savings(request: StageRequest, hardware: Hardware, keep: Sequence[str] = ()) -> tuple[Change, ...]:
    """What each change would save on its own, in the order of what it gives up.

    Those that save nothing are out, but for the one without which vLLM cannot start.
    """
    hardware = hardware_for(request, hardware)
    request, _ = valid_groups(request, hardware)
    before = size_stage(request, hardware)
    found: dict[tuple[str, str], Change] = {}
    for rung in LADDER:
        step = next(rung(request, hardware), None)
        if step is None:
            continue
        after = step.apply(request)
        if any(getattr(after, key) != getattr(request, key) for key in keep):
            continue
        size = size_stage(after, hardware)
        saved = before.high_bytes - size.high_bytes
        if saved > TRIFLE * before.high_bytes or (before.problem and not size.problem):
            change = _change(step, request, after, saved, hardware)
            found.setdefault((change.what, change.to_value), change)
    return tuple(found.values())


def shortfall(request: StageRequest, hardware: Hardware, keep: Sequence[str] = ()) -> list[str]:
    """By how much a request does not fit, then the three cheapest changes with what each alone would save.

    Where all that would help is among what the user set, those are named.
    """
    size = size_stage(request, hardware)
    changes = savings(request, hardware, keep)[:3]
    given = "" if changes or not keep else ", if they were not as given"
    if given:
        changes = savings(request, hardware)[:3]
    sentences = [f"{size.problem}."] if size.problem else []
    if size.headroom_bytes < 0:
        sentences.append(f"Short by {gib(-size.headroom_bytes)}.")
    if changes:
        sentences.append(f"The cheapest changes, and what each alone would save{given}:")
    lines = [" ".join(sentences)]
    for change in changes:
        saves = gib(change.saves_bytes) if change.saves_bytes else "to start"
        lines.append(f"  {saves:>9}  {change.what}: {change.from_value} → {change.to_value}")
    return lines


def _no_way(
    start: StageRequest,
    climbed: list[tuple[list[Step], StageSize]],
    hardware: Hardware,
    keep: Sequence[str],
) -> str:
    """Why nothing fits and what would help: every number with the configuration and hardware it is of."""
    asked = climbed[0][1]
    steps, leanest = min(climbed, key=lambda pair: (pair[1].problem is not None, pair[1].high_bytes))
    where = f"each of {asked.num_gpus} × {asked.device}" if asked.num_gpus > 1 else asked.device
    text = (
        f"on {where}, {start.method} of {start.model} ({start.tuning}) needs {_range(asked)}; "
        f"{gib(asked.available_bytes)} is free"
    )
    lines = [text]
    if steps:
        lean_request = _apply(start, steps)
        whats = dict.fromkeys(step.what for step in steps)
        made = ", ".join(f"{what} {_shown(lean_request, what, hardware)}" for what in whats)
        lines.append(f"with every saving ({made}) it needs {_range(leanest)}")
        if leanest.problem:
            lines[-1] += f", and {leanest.problem}"
    if keep:
        lines[-1] += f"; as given: {', '.join(keep)}"
    as_asked = smallest_hardware(start)
    lean = smallest_hardware(start, savings=True, keep=keep)
    fits = [f"as asked it fits {as_asked}"] if as_asked else []
    if lean and lean != as_asked:
        fits.append(f"with every saving it fits {lean}")
    if fits:
        lines.append("; ".join(fits))
    return "\n".join([*lines, *shortfall(start, hardware, keep)])


def _range(size: StageSize) -> str:
    return f"{gib(size.peak_bytes)} (up to {gib(size.high_bytes)})"


def smallest_hardware(request: StageRequest, savings: bool = False, keep: Sequence[str] = ()) -> str | None:
    """The smallest, then cheapest, single GPU that fits `request`, or else the fewest of the largest GPUs.

    With `savings`, changes of the ladder may be made, but for the keys in `keep`. The answer says what is
    needed there.
    """
    ranked = sorted(known_gpus().values(), key=lambda gpu: (gpu.memory_bytes, _price(gpu.name)))
    for gpu in ranked:
        size = (
            None
            if gpu.architecture.startswith(NOT_OFFERED)
            else _fitting(request, gpu.name, 1, savings, keep)
        )
        if size:
            return f"one {gpu.name} (up to {gib(size.high_bytes)} of {gib(size.available_bytes)})"
    for count in (2, 4, 8, 16, 32, 64, 128):
        for name in MANY_GPUS:
            for kind in (request.sharding,) if request.sharding in SHARDED else SHARDED:
                sharded = request.model_copy(update={"sharding": kind})
                size = _fitting(sharded, name, count, savings, keep)
                if size:
                    need = f"up to {gib(size.high_bytes)} of {gib(size.available_bytes)} on each"
                    return f"{count} × {name} with sharding {kind} ({need})"
    return None


def _price(name: str) -> float:
    price = price_of(name)
    return price.median if price else 1e9


def _fitting(
    request: StageRequest, gpu: str, count: int, savings: bool, keep: Sequence[str]
) -> StageSize | None:
    """The size on `count` idle GPUs where it fits."""
    update: dict[str, Any] = {"gpu": None, "gpu_memory_gib": None, "num_gpus": count}
    hardware = hardware_from_name(gpu, count)
    start, _ = valid_groups(request.model_copy(update=update), hardware)
    size = _climb(start, hardware, keep)[-1][1] if savings else size_stage(start, hardware)
    return size if size.verdict == "fits" else None
