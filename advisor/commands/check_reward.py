"""`advisor check reward`: golds that are not paid, and probes that are, before it costs a GPU hour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.commands import new_app
from estimators.errors import BadInput

if TYPE_CHECKING:
    from pipelines.rewards.preflight import Finding, Findings

app = new_app()
GYM_ROWS = 50


@app.command(name="reward")
def check_reward(
    reward: Annotated[
        str,
        typer.Argument(metavar="REWARD", help="A built-in name, file.py:function, or reasoning_gym:NAME."),
    ],
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="The prompts with their golds; reasoning_gym makes its own."),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Try only the first so many rows.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The two-second check that runs before RL.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Does REWARD pay every gold of DATA and no attack? Exit 1 with the worst finding first.

    Every gold against itself; empty, echoed, sprayed and forged completions; exceptions, None, types,
    determinism, threads, and the cost of 1,000 completions.
    """
    from pipelines.rewards.preflight import check_reward as check
    from pipelines.rewards.preflight import preflight

    samples = _samples(reward, data, rows)
    findings = preflight(reward, samples, Path.cwd()) if quick else check(reward, samples, Path.cwd())
    typer.echo(findings.model_dump_json(indent=2) if as_json else show(findings))
    return 0 if findings.ok else 1


def _samples(reward: str, data: str | None, rows: int | None) -> list[dict[str, Any]]:
    """The rows to try the reward on."""
    from itertools import islice

    if data is None:
        if not reward.startswith("reasoning_gym:"):
            raise BadInput(f"say on which data: advisor check reward {reward} prompts.jsonl")
        from pipelines.rewards.reasoning_gym_source import make_rows

        return make_rows(reward.partition(":")[2], rows or GYM_ROWS, seed=0)
    from pipelines.datasets import inspect_source, raise_for_error, read_normalised

    report = inspect_source(data)
    raise_for_error(report)
    return list(islice(read_normalised(data, report), rows))


def show(findings: Findings) -> str:
    """What was tried in one line, then each finding, the worst first."""
    tried = (
        f"{findings.reward}: {findings.golds_paid} of {findings.golds_tried} golds paid, "
        f"{findings.probes_tried} probes, {findings.none} without a score, {findings.exceptions} exceptions"
    )
    if findings.seconds_per_1000 is not None:
        tried += f"; 1,000 completions take {findings.seconds_per_1000:.2g} s"
    lines = [tried]
    for finding in findings.findings:
        lines += _show_one(finding)
    if not findings.findings:
        lines.append("nothing found")
    return "\n".join(lines)


def _show_one(finding: Finding) -> list[str]:
    lines = [f"{finding.severity}: {finding.says}" + (f" (at {finding.place})" if finding.place else "")]
    if finding.rows:
        more = ", ..." if finding.count > len(finding.rows) else ""
        lines.append(f"  rows {', '.join(map(str, finding.rows))}{more}")
    if finding.sample:
        lines.append(f"  {finding.sample}")
    if finding.remedy:
        lines.append(f"  {finding.remedy}")
    return lines


if __name__ == "__main__":
    app()
