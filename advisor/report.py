"""report.html and report.md: the decision, the plan, held-out numbers, curves, samples, and how to repeat it.

One file without scripts or links to anywhere, so that it can be mailed and kept.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from advisor import __version__
from advisor.charts import histogram, interval_chart, line_chart
from advisor.progress import clock
from advisor.recommend import Recommendation
from estimators.record import read_record, write_atomic
from pipelines import stages
from pipelines.events import Event, metric_series, read_events
from pipelines.passk import Z_95
from pipelines.plan import Plan, read_plan
from pipelines.prepare import read_sources
from pipelines.runs import RECOMMENDATION, REPORT, REPORT_TEXT, RunRecord, read_run, read_tracking
from pipelines.stages import StageResult

CURVES = (
    ("loss", "Loss"),
    ("mean_token_accuracy", "Token accuracy"),
    ("rewards/accuracies", "Pairs ranked right"),
    ("rewards/margins", "Margin of chosen over rejected"),
    ("TASK", "Task reward of rollouts"),
    ("groups/informative", "Groups with signal"),
    ("dynamic_sampling/rounds", "Rounds of rollouts per batch"),
    ("completions/mean_length", "Tokens per completion"),
    ("completions/clipped_ratio", "Completions cut off"),
    ("entropy", "Entropy"),
    ("kl", "KL to the reference"),
)
SAMPLE_PROMPTS = 10


class Material:
    """All that a report is made of, read once from the run folder."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.plan: Plan = read_plan(run_dir)
        self.run: RunRecord | None = read_run(run_dir)
        path = run_dir / RECOMMENDATION
        self.recommendation = read_record(Recommendation, path) if path.exists() else None
        self.results: dict[str, StageResult] = {}
        self.events: dict[str, list[Event]] = {}
        for stage in self.plan.stages:
            result = stages.read_result(run_dir / stage.folder)
            if result is not None:
                self.results[stage.folder] = result
            self.events[stage.folder] = read_events(run_dir / stage.folder / stages.EVENTS)

    def label(self, folder: str) -> str:
        """What a stage's held-out numbers stand for."""
        method = next(s.method for s in self.plan.stages if s.folder == folder)
        return "base model" if method == "probe" else f"after {method.upper()}"

    def held_out(self) -> list[tuple[str, stages.PassRates]]:
        """Label and pass rates of every evaluated stage, in order."""
        return [
            (self.label(folder), result.pass_rates)
            for folder, result in self.results.items()
            if result.pass_rates is not None
        ]


def write_report(run_dir: Path) -> list[Path]:
    """Write report.html and report.md from what has run so far; returns their paths."""
    material = Material(run_dir)
    page, text = run_dir / REPORT, run_dir / REPORT_TEXT
    write_atomic(page, render_html(material))
    write_atomic(text, render_text(material))
    return [page, text]


# HTML -------------------------------------------------------------------------------------------------


def render_html(m: Material) -> str:
    """The whole page."""
    status = m.run.status if m.run else "not run yet"
    parts = [
        f"<h1>{_e(m.plan.name)}</h1>",
        f'<p class="soft">{_e(status)} · seed {m.plan.seed} · {_e(m.plan.hardware)}</p>',
        f'<p class="lead">{_e(headline(m))}</p>',
        _section("Held-out results", _held_out(m)),
        _section("Samples, before and after", _samples(m)),
        _section("Learning curves", _curves(m)),
        _section("The data", _data(m)),
        _section("The decision", _decision(m)),
        _section("The plan, predicted and measured", _plan(m)),
        _section("How to repeat it", _repeat(m)),
    ]
    style = resources.files("templates.report").joinpath("style.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_e(m.plan.name)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{style}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def headline(m: Material) -> str:
    """The result in one sentence, with its interval; honest where there is none."""
    held_out = m.held_out()
    if len(held_out) < 2:
        return "No held-out comparison yet: it needs a reward, held-out prompts and a finished stage."
    (first, before), (last, after) = held_out[0], held_out[-1]
    change = after.pass_at_1.value - before.pass_at_1.value
    errors = [(r.pass_at_1.high - r.pass_at_1.low) / (2 * Z_95) for r in (before, after)]
    clear = abs(change) > Z_95 * math.hypot(*errors)
    doubt = "" if clear else "; that is within the intervals, so no clear change"
    return (
        f"pass@1 on {after.prompts} held-out prompts went from {before.pass_at_1.value:.3f} ({first}) to "
        f"{after.pass_at_1.value:.3f} ({last}), 95 % interval {after.pass_at_1.low:.3f} to "
        f"{after.pass_at_1.high:.3f}{doubt}."
    )


def _held_out(m: Material) -> str:
    rates = m.held_out()
    body = ""
    if rates:
        rows = [(label, r.pass_at_1.value, r.pass_at_1.low, r.pass_at_1.high) for label, r in rates]
        body += interval_chart(rows)
        body += _table(
            (
                "",
                "pass@1",
                "95 % interval",
                f"pass@{rates[0][1].samples}",
                "all right",
                "all wrong",
                "cut off",
                "tokens",
            ),
            [
                (
                    label,
                    f"{r.pass_at_1.value:.3f}",
                    f"{r.pass_at_1.low:.3f} to {r.pass_at_1.high:.3f}",
                    f"{r.pass_at_k.value:.3f}",
                    f"{r.all_right:.3f}",
                    f"{r.all_wrong:.3f}",
                    f"{r.truncated:.3f}",
                    f"{r.mean_tokens:.1f}",
                )
                for label, r in rates
            ],
            numeric=range(1, 8),
        )
        first = rates[0][1]
        body += (
            f'<p class="soft">{first.prompts} prompts, {first.samples} completions each, none trained on. '
            "pass@1: share of completions that the task's reward pays in full. All right, all wrong: share "
            "of prompts. The prompt is the unit of the interval (Wilson).</p>"
        )
    others = [
        (m.label(folder), _e(name.removeprefix("eval_")), f"{value:.4f}")
        for folder, result in m.results.items()
        for name, value in sorted(result.metrics.items())
        if name
        in ("eval_loss", "eval_mean_token_accuracy", "eval_rewards/accuracies", "eval_rewards/margins")
    ]
    if others:
        body += _table(("", "on held-out training rows", "value"), others, numeric=(2,))
    return body or '<p class="soft">Nothing was evaluated.</p>'


def _samples(m: Material) -> str:
    """The same held-out prompts answered by each stage's model, side by side."""
    columns = held_out_samples(m)
    if not columns:
        return '<p class="soft">No samples.</p>'
    prompts = list(next(iter(columns.values())))[:SAMPLE_PROMPTS]
    head = "".join(f"<th>{_e(label)}</th>" for label in columns)
    rows = ""
    for prompt in prompts:
        cells = "".join(
            f'<td class="text {_class(reward)}">{_e(_short(completion))}</td>'
            for completion, reward in (column.get(prompt, ("", None)) for column in columns.values())
        )
        rows += f'<tr><td class="text">{_e(_short(prompt))}</td>{cells}</tr>'
    return (
        f"<table><tr><th>prompt</th>{head}</tr>{rows}</table>"
        '<p class="soft">One completion per prompt, the first that was sampled, not picked. '
        '<span class="right">Right</span>, <span class="wrong">wrong</span>, by the task\'s reward.</p>'
    )


def held_out_samples(m: Material) -> dict[str, dict[str, tuple[str, float | None]]]:
    """Label -> prompt -> (first completion, its reward), for every evaluated stage."""
    columns: dict[str, dict[str, tuple[str, float | None]]] = {}
    for folder, events in m.events.items():
        tables = [e["rows"] for e in events if e["kind"] == "completions" and e["name"] == "held-out"]
        if tables:
            column: dict[str, tuple[str, float | None]] = {}
            for row in tables[-1]:
                column.setdefault(row["prompt"], (row["completion"], row["reward"]))
            columns[m.label(folder)] = column
    return columns


def _curves(m: Material) -> str:
    body = ""
    for stage in m.plan.stages:
        series = metric_series(m.events[stage.folder])
        charts = "".join(line_chart(title, series.get(_metric(name, series), [])) for name, title in CURVES)
        if charts:
            body += f'<h3>{_e(stage.folder)}</h3><div class="curves">{charts}</div>'
    return body or '<p class="soft">No stage has trained yet.</p>'


def _metric(name: str, series: dict[str, Any]) -> str:
    """The name of the task's own reward where that is asked for, else the name itself."""
    if name != "TASK":
        return name
    means = [k for k in series if k.startswith("rewards/") and k.endswith("/mean") and "overlong" not in k]
    return means[0] if means else name


def _data(m: Material) -> str:
    """Each source: what it is, how long its rows are, and its first row."""
    sources = read_sources(m.run_dir)
    if not sources:
        return '<p class="soft">What the data looked like was not recorded.</p>'
    rows = []
    charts = sample = ""
    for kind, source in sources.items():
        report = source.report
        mapped = ", ".join(f"{ours} ← {theirs}" for ours, theirs in report.mapping.items())
        rows.append(
            (
                _e(kind),
                _e(Path(report.file).name),
                _e(report.format),
                f"{report.rows:,}",
                _e(mapped),
                f"<code>{_e(source.digest[:16])}</code>",
            )
        )
        for part, lengths in report.lengths.items():
            charts += histogram(f"{kind}: {part}, {lengths.unit}", lengths.histogram)
        if report.sample is not None:
            first = json.dumps(report.sample, ensure_ascii=False)
            sample += f"<p>The first row of {_e(kind)}:</p><pre>{_e(_short(first, 1200))}</pre>"
    head = ("kind", "file", "format", "rows", "columns, TRL's ← the file's", "digest")
    return _table(head, rows, numeric=(3,)) + f'<div class="curves">{charts}</div>{sample}'


def _decision(m: Material) -> str:
    r = m.recommendation
    if r is None:
        return '<p class="soft">No recommendation was recorded.</p>'
    body = f"<p><b>{_e(' → '.join(s.upper() for s in r.pipeline))}</b>"
    body += " in its economy form (LoRA, 4 completions a prompt)</p>" if r.economy else "</p>"
    body += _table(
        ("question", "answer", "what it says", "source"),
        [(_e(x.question), _e(x.answer), _e(x.says), _e(x.source)) for x in r.reasons],
    )
    body += "<h3>Instead</h3>" + _table(
        ("pipeline", "why not", "flips when"),
        [
            (_e(" → ".join(s.upper() for s in a.pipeline)), _e(a.why_not), _e(a.flips_when))
            for a in r.alternatives
        ],
    )
    if r.next_step is not None:
        body += f"<p>Next: {_e(r.next_step.says)}</p>"
    return body + "".join(f'<p class="soft">{_e(warning)}</p>' for warning in r.warnings)


def _plan(m: Material) -> str:
    rows = []
    for s in m.plan.stages:
        result = m.results.get(s.folder)
        rows.append(
            (
                _e(s.folder),
                _e(s.tuning),
                f"{result.steps if result else s.steps}",
                f"{s.memory_gib:.2f} ({s.memory_low_gib:.2f} to {s.memory_high_gib:.2f})",
                f"{result.peak_memory_bytes / 2**30:.2f}" if result else "–",
                f"{clock(3600 * s.hours_low)} to {clock(3600 * s.hours_high)}",
                clock(sum(result.seconds.values())) if result else "–",
                _e(s.verdict),
            )
        )
    body = _table(
        (
            "stage",
            "tuning",
            "steps",
            "GiB estimated",
            "GiB measured",
            "time estimated",
            "time measured",
            "verdict",
        ),
        rows,
        numeric=range(2, 7),
    )
    changes = [f"{s.folder}: {c}" for s in m.plan.stages for c in s.changes]
    return body + "".join(f'<p class="soft">{_e(line)}</p>' for line in (*changes, *m.plan.notes))


def _repeat(m: Material) -> str:
    tracking = read_tracking(m.run_dir)
    where = f"MLflow run {tracking.parent_run_id} in {tracking.uri}" if tracking else "not logged"
    versions = next(iter(m.results.values())).versions if m.results else {}
    made_with = ", ".join(
        f"{name} {version}" for name, version in {"advisor": __version__, **versions}.items()
    )
    rows = [
        (_e(folder), f"<code>{_e(result.identity[:16])}</code>", f"{result.num_trainable_parameters:,}")
        for folder, result in m.results.items()
    ]
    return (
        f"<pre>{_e(repeat_commands(m))}</pre>"
        + _table(("stage", "identity", "trained parameters"), rows, numeric=(2,))
        + f'<p class="soft">{_e(made_with)}. {_e(where)}. '
        + "A stage's identity is a hash of its config, script, data and parent.</p>"
    )


def repeat_commands(m: Material) -> str:
    """The commands that make this run again, and that look at it."""
    lines = [m.plan.repeat_with or f"advisor plan {m.run_dir}/answers.yaml -o again"]
    if not lines[0].startswith("advisor quickstart"):
        lines.append("advisor run again")
    lines.append(f"advisor run {m.run_dir}  # goes on where it was interrupted")
    lines.append(f"advisor ui {m.run_dir}  # MLflow's page of this run")
    return "\n".join(lines)


def _section(title: str, body: str) -> str:
    return f"<h2>{_e(title)}</h2>{body}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> str:
    """A table; cells are HTML already."""
    right = set(numeric)
    mark = {i: ' class="num"' if i in right else "" for i in range(len(head))}
    top = "".join(f"<th{mark[i]}>{_e(cell)}</th>" for i, cell in enumerate(head))
    body = "".join(
        "<tr>" + "".join(f"<td{mark[i]}>{c}</td>" for i, c in enumerate(row)) + "</tr>" for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"


def _e(text: object) -> str:
    return html.escape(str(text))


def _class(reward: float | None) -> str:
    return "" if reward is None else "right" if reward >= 1 - 1e-6 else "wrong"


def _short(text: str, limit: int = 600) -> str:
    return text if len(text) <= limit else text[:limit] + " …"


# Text -------------------------------------------------------------------------------------------------


def render_text(m: Material) -> str:
    """The same as Markdown, without curves."""
    lines = [f"# {m.plan.name}", "", headline(m), ""]
    rates = m.held_out()
    if rates:
        lines += [f"| | pass@1 | 95 % interval | pass@{rates[0][1].samples} |", "|---|---|---|---|"]
        lines += [
            f"| {label} | {r.pass_at_1.value:.3f} | {r.pass_at_1.low:.3f} to {r.pass_at_1.high:.3f} | "
            f"{r.pass_at_k.value:.3f} |"
            for label, r in rates
        ]
    lines += [
        "",
        "| stage | GiB estimated | GiB measured | time estimated | time measured |",
        "|---|---|---|---|---|",
    ]
    for s in m.plan.stages:
        result = m.results.get(s.folder)
        measured = (
            (f"{result.peak_memory_bytes / 2**30:.2f}", clock(sum(result.seconds.values())))
            if result
            else ("–", "–")
        )
        lines.append(
            f"| {s.folder} | {s.memory_gib:.2f} | {measured[0]} | "
            f"{clock(3600 * s.hours_low)} to {clock(3600 * s.hours_high)} | {measured[1]} |"
        )
    columns = held_out_samples(m)
    if columns:
        lines += ["", "| prompt | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for prompt in list(next(iter(columns.values())))[:SAMPLE_PROMPTS]:
            cells = [_cell(column.get(prompt, ("", None))[0]) for column in columns.values()]
            lines.append(f"| {_cell(prompt)} | " + " | ".join(cells) + " |")
    if m.recommendation is not None:
        lines += ["", "## The decision", ""]
        lines += [f"- {r.question} {r.answer}: {r.says} ({r.source})" for r in m.recommendation.reasons]
    return "\n".join([*lines, "", "## How to repeat it", "", "```", repeat_commands(m), "```", ""])


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return "`" + _short(text, 200).replace("\n", " ").replace("|", "\\|").replace("`", "'") + "`"
