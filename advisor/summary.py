"""The end of a run on the terminal: held-out numbers before and after, and where to look."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from pipelines import stages
from pipelines.plan import read_plan
from pipelines.runs import REPORT, read_tracking
from pipelines.stages import PassRates, StageResult


def results(run_dir: Path) -> list[tuple[str, StageResult]]:
    """Folder and result of every finished stage, in order."""
    found = [(s.folder, stages.read_result(run_dir / s.folder)) for s in read_plan(run_dir).stages]
    return [(folder, result) for folder, result in found if result is not None]


def say_outcome(run_dir: Path, stream: TextIO) -> None:
    """Print the end card."""
    lines = [
        "",
        f"  {'stage':<10} {'pass@1':>7}  {'95 % interval':<18} {'pass@k':>7}   {'peak memory':<20} time",
    ]
    planned = {s.folder: s for s in read_plan(run_dir).stages}
    for folder, result in results(run_dir):
        rates, plan = result.pass_rates, planned[folder]
        held_out = _rates(rates) if rates else f"{_metric(result):<36}"
        memory = f"{result.peak_memory_bytes / 2**30:.2f} GiB (est. {plan.memory_gib:.2f})"
        lines.append(f"  {folder:<10} {held_out} {memory:<20} {sum(result.seconds.values()):.0f} s")
        if result.note:
            lines.append(f"  {'':<10} {result.note}")
    report, tracking = run_dir / REPORT, read_tracking(run_dir)
    lines += ["", f"  Report:  {report}"] if report.exists() else [""]
    lines.append(f"  Model:   {run_dir / results(run_dir)[-1][0] / stages.MODEL}" if results(run_dir) else "")
    lines.append(f"  MLflow:  advisor ui {run_dir}")
    if tracking is None or tracking.error:
        cause = tracking.error if tracking else "its process did not start"
        lines.append(f"  MLflow did not take everything ({cause}); `advisor run {run_dir}` sends the rest")
    stream.write("\n".join(lines) + "\n")


def _rates(rates: PassRates) -> str:
    one, many = rates.pass_at_1, rates.pass_at_k
    interval = f"{one.low:.3f} to {one.high:.3f}"
    return f"{one.value:>7.3f}  {interval:<18} {many.value:>7.3f}  "


def _metric(result: StageResult) -> str:
    """The held-out number of a stage without a reward."""
    for name, label in (("eval_rewards/accuracies", "pairs ranked right"), ("eval_loss", "held-out loss")):
        if name in result.metrics:
            return f"{label} {result.metrics[name]:.3f}"
    return ""
