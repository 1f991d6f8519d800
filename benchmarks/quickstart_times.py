"""How well a calibration predicts the quickstart: seconds of each stage, planned and spent.

Usage: python benchmarks/quickstart_times.py FOLDER [--rounds 3]

Each round calibrates (`advisor estimate --calibrate`, into a cache of its own), plans and runs `advisor
quickstart`, and prints planned ÷ spent for every stage. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from estimators.record import read_record
from pipelines import stages
from pipelines.plan import Plan
from pipelines.runs import PLAN

ROOT = Path(__file__).parent.parent
WITHIN = 0.15


def advisor(folder: Path, *words: str) -> float:
    """Runs a verb in `folder`; wall seconds."""
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{(folder / 'mlflow.db').absolute()}",
    }
    began = time.monotonic()
    command = [sys.executable, "-m", "advisor", *words]
    with (folder / "out.log").open("a") as log:
        subprocess.run(command, stdout=log, stderr=log, env=environment, check=True)
    return time.monotonic() - began


def one_round(folder: Path) -> dict[str, float]:
    """Planned ÷ spent seconds of every stage, in a folder that is not there yet."""
    folder.mkdir(parents=True)
    script = ROOT / "templates" / "quickstart" / "make_task.py"
    subprocess.run([sys.executable, str(script), str(folder / "task"), "0"], check=True, capture_output=True)
    model = str(folder / "task" / "base-model")
    print(
        f"{folder.name}: calibrated in {advisor(folder, 'estimate', '--model', model, '--calibrate'):.0f} s"
    )
    advisor(folder, "quickstart", "-o", str(folder / "run"))
    ratios = {}
    for stage in read_record(Plan, folder / "run" / PLAN).stages:
        planned = (stage.hours_low * stage.hours_high) ** 0.5 * 3600
        spent = sum(stages.read_result(folder / "run" / stage.folder).seconds.values())
        ratios[stage.folder] = planned / spent
        inside = stage.hours_low * 3600 <= spent <= stage.hours_high * 3600
        print(
            f"  {stage.folder:<10} planned {planned:6.1f} s  spent {spent:6.1f} s  "
            f"ratio {planned / spent:.2f}, {'in' if inside else 'outside'} the planned range",
            flush=True,
        )
    return ratios


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rounds = [one_round(options.folder.absolute() / f"round-{n}") for n in range(options.rounds)]
    for name in rounds[0]:
        found = [ratios[name] for ratios in rounds]
        print(
            f"{name}: median {statistics.median(found):.2f}, {min(found):.2f} to {max(found):.2f}; within "
            f"{WITHIN:.0%}: {sum(abs(ratio - 1) <= WITHIN for ratio in found)} of {len(found)}"
        )


if __name__ == "__main__":
    main()
