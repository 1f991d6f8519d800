"""The whole wizard: questions, hardware, recommendation, plan, yes or no, run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from advisor import prompts
from advisor.asking import ask_everything
from estimators.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.answers import Answers


def whole(path: Path) -> None:
    """Run the wizard; answers are kept in `path` as they are given."""
    try:
        run = _run_to_go_on_with()
        answers = ask_everything(path) if run is None else None
    except KeyboardInterrupt:
        kept = f"the answers so far are in {path}" if path.exists() else "nothing is answered yet"
        prompts.stopped(f"{kept}; `advisor` goes on from there")
    if run is not None:
        from advisor.commands.run import run_folder

        run_folder(run)
    elif answers is not None:
        recommend_plan_run(answers, path)


def _run_to_go_on_with() -> Path | None:
    """A run of this folder that was left before its end, if the user wants to go on with one."""
    if not any(Path().glob("*/plan.yaml")):
        return None
    from advisor.checks import open_runs

    runs = open_runs()[:5]
    if not runs:
        return None
    choices = [*((str(run), f"go on with {run}") for run in runs), ("", "begin another run")]
    picked = prompts.choose("A run is not finished" if len(runs) == 1 else "Runs are not finished", choices)
    return Path(picked) if picked else None


def recommend_plan_run(answers: Answers, path: Path) -> None:
    """Show the recommendation and the plan, ask whether to start, and run."""
    from advisor import checks
    from advisor.display import show_plan, show_recommendation
    from advisor.planning import hardware_for, make_plan
    from advisor.recommend import recommend

    try:
        hardware = hardware_for(answers)
        recommendation = recommend(answers)
        prompts.say(f"\n{show_recommendation(recommendation, brief=True)}\n")
        prompts.say(f"(`advisor recommend {path}` adds the sources)\n")
        prompts.say(prompts.wrap(f"Hardware: {hardware.message}", "  ", first=""))
        for note in hardware.notes:
            prompts.say(prompts.wrap(note, "    ", first="  ! "))
        prompts.say()
        out = prompts.line("Folder for the run", checks.run_folder, default=checks.free_run_folder())
        assert out is not None
        prompts.say("\nReading the data and sizing the stages …\n")
        plan = make_plan(answers, out, hardware)
    except KeyboardInterrupt:
        prompts.stopped(f"the answers are in {path}; `advisor` goes on from there")
    except AdvisorError as error:
        prompts.failed(error, f"The answers are in {path}: change them there, or call `advisor` again.")
    prompts.say(show_plan(plan))
    prompts.say()
    try:
        agreed = prompts.confirm("Start the run now?")
    except KeyboardInterrupt:
        prompts.stopped(f"the plan is in {out}; `advisor run {out}` starts it")
    if not agreed:
        prompts.say(f"not started; `advisor run {out}` starts it")
        return

    from advisor.commands.run import run_folder

    run_folder(out)
