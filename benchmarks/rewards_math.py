"""Throughput of `math_reward` against math-verify called directly in one process, paired in one run.

python benchmarks/rewards_math.py [tests/cases/math.jsonl]

Pairs marked `must_not_hang` are left out of the paired part, since math-verify hangs on some of them; they
are then timed alone through `math_reward`. Every round runs both sides on the same pairs, in alternating
order.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from pathlib import Path

from math_verify import parse, verify

from pipelines.rewards import math_reward

ROUNDS = 7


def math_verify_directly(pairs: list[dict]) -> int:
    """How many pairs math-verify calls equal, used as its documentation says."""
    equal = 0
    for row in pairs:
        wanted = parse(f"${row['gold']}$", parsing_timeout=None)
        found = parse(row["pred"], parsing_timeout=None)
        equal += bool(verify(wanted, found, timeout_seconds=None))
    return equal


def ours(pairs: list[dict]) -> int:
    """How many pairs `math_reward` calls equal."""
    rewards = math_reward([row["pred"] for row in pairs], answer=[row["gold"] for row in pairs])
    return sum(reward == 1.0 for reward in rewards)


def main() -> None:
    """Print the pairs per second of both sides, and the ratio of each round."""
    import logging

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "tests/cases/math.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = [row for row in rows if not row["must_not_hang"]]
    truth = sum(row["equal"] for row in pairs)
    ours(pairs), math_verify_directly(pairs)  # both warm: imports, the first worker
    ratios, speeds = [], {"ours": [], "math-verify": []}
    for round_ in range(ROUNDS):
        seconds = {}
        order = [("ours", ours), ("math-verify", math_verify_directly)]
        for name, function in order if round_ % 2 else order[::-1]:
            start = time.perf_counter()
            found = function(pairs)
            seconds[name] = time.perf_counter() - start
            speeds[name].append(len(pairs) / seconds[name])
            if not round_:
                print(f"{name}: {found} of {len(pairs)} called equal (truth {truth})")
        ratios.append(seconds["math-verify"] / seconds["ours"])
    for name, values in speeds.items():
        print(f"{name}: median {statistics.median(values):.0f} pairs/s")
    print(f"ratio ours / math-verify per round: {', '.join(f'{r:.1f}' for r in ratios)}")
    print(f"median ratio {statistics.median(ratios):.1f}, worst {min(ratios):.1f}")
    slowest = 0.0
    for row in rows:
        start = time.perf_counter()
        ours([row])
        slowest = max(slowest, time.perf_counter() - start)
    print(f"all {len(rows)} pairs one by one, hang cases included: slowest check {slowest:.2f} s")


if __name__ == "__main__":
    main()
