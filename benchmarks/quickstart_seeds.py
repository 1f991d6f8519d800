"""The quickstart over several seeds: held-out pass@1 after each stage, and how long it took.

Usage: python benchmarks/quickstart_seeds.py FOLDER [--seeds 10] [--at-once 1]

Runs `advisor quickstart` once per seed, each in a folder of its own, and prints one row per seed and the
medians. A folder that is there already is read, not run again. With --at-once 2 the learning is the same and
the times are not.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines import stages

STAGES = ("00-probe", "01-sft", "02-dapo")
BAR = 0.95


def run_seed(root: Path, seed: int, threads: int | None) -> float:
    """Wall seconds of one quickstart; its output goes to a log."""
    folder = root / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{(folder / 'mlflow.db').absolute()}"
    with (folder / "out.log").open("w") as log:
        command = [
            sys.executable,
            "-m",
            "advisor",
            "quickstart",
            "-o",
            str(folder / "run"),
            "--seed",
            str(seed),
        ]
        subprocess.run(command, stdout=log, stderr=log, env=environment, check=True)
    return time.monotonic() - started


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=1)
    arguments = parser.parse_args()
    threads = 1 if arguments.at_once > 1 else None
    with ThreadPoolExecutor(arguments.at_once) as pool:
        seconds = list(pool.map(lambda s: run_seed(arguments.folder, s, threads), range(arguments.seeds)))
    finals = []
    print("seed   base    SFT   DAPO  wall s")
    for seed, wall in enumerate(seconds):
        run = arguments.folder / f"seed-{seed}" / "run"
        rates = [stages.read_result(run / stage).pass_rates.pass_at_1.value for stage in STAGES]
        finals.append(rates[-1])
        print(f"{seed:>4} {rates[0]:>6.3f} {rates[1]:>6.3f} {rates[2]:>6.3f} {wall:>7.0f}")
    print(f"median of DAPO {statistics.median(finals):.3f}, lowest {min(finals):.3f}")
    print(f"at least {BAR}: {sum(final >= BAR for final in finals)} of {len(finals)}")
    print(f"wall seconds: median {statistics.median(seconds):.0f}, longest {max(seconds):.0f}")


if __name__ == "__main__":
    main()
