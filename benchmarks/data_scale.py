"""How fast `inspect_source` reads a large file of JSON lines, against orjson alone on the same lines, and
in what memory.

    python benchmarks/data_scale.py [--gigabytes 2] [--rounds 3] [--kind prompt_completion] [--folder /tmp]

Writes the file, reads it with both in turn (so that both meet the same load), removes it, and prints one
JSON object. Memory is the largest sum of resident bytes over the process and its workers, sampled ten times
a second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import orjson

WORDS = [
    "the",
    "model",
    "reads",
    "each",
    "row",
    "once",
    "and",
    "says",
    "what",
    "is",
    "odd",
    "about",
    "it",
    "before",
    "a",
    "gpu",
    "hour",
    "is",
    "spent",
    "on",
    "data",
]
ORJSON = """
import sys, orjson
rows = 0
for line in open(sys.argv[1], "rb"):
    orjson.loads(line)
    rows += 1
print(rows)
"""
CHECK = """
import sys
from pipelines.datasets import inspect_source
report = inspect_source(sys.argv[1])
assert report.error is None, report.error
print(report.rows)
"""


def text(words: int) -> str:
    return " ".join(random.choices(WORDS, k=words))


def row(kind: str, number: int) -> dict[str, object]:
    """One row, with a number in it so that no two are equal."""
    if kind == "text":
        return {"text": f"{number} {text(150)}"}
    if kind == "messages":
        turns = [
            ("user", f"{number} {text(20)}"),
            ("assistant", text(60)),
            ("user", text(10)),
            ("assistant", text(40)),
        ]
        return {"messages": [{"role": role, "content": content} for role, content in turns]}
    if kind == "preference":
        return {"prompt": f"{number} {text(30)}", "chosen": text(60), "rejected": text(60)}
    if kind == "prompt_only":
        return {"prompt": f"{number} {text(80)}", "answer": str(number), "level": number % 5}
    return {"prompt": f"{number} {text(50)}", "completion": text(100), "source": "synthetic", "score": 0.5}


def write(path: Path, kind: str, size: int) -> None:
    """Random rows up to `size` bytes; a pool of texts keeps this fast, the number keeps rows apart."""
    pool = [orjson.dumps(row(kind, 10_000_000)) for _ in range(2000)]
    number = 10_000_000
    with path.open("wb") as file:
        written = 0
        while written < size:
            lines = []
            for item in random.choices(pool, k=2000):
                lines.append(item.replace(b"10000000", str(number).encode()))
                number += 1
            block = b"\n".join(lines) + b"\n"
            file.write(block)
            written += len(block)


def tree_rss(pid: int) -> int:
    """Resident bytes of a process and of those it started."""
    total, waiting = 0, [pid]
    while waiting:
        current = waiting.pop()
        try:
            total += int(Path(f"/proc/{current}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for task in Path(f"/proc/{current}/task").iterdir():
                waiting.extend(int(child) for child in (task / "children").read_text().split())
        except (OSError, ValueError):
            continue
    return total


def timed(code: str, path: Path) -> tuple[float, float, int, str]:
    """Seconds, seconds of all processors, peak resident bytes of all its processes, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    peak = [0]

    def watch() -> None:
        while process.poll() is None:
            peak[0] = max(peak[0], tree_rss(process.pid))
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate()
    seconds = time.perf_counter() - start
    watcher.join()
    if process.returncode:
        raise SystemExit(process.returncode)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, busy, peak[0], out.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", default="prompt_completion")
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    options = parser.parse_args()
    path = options.folder / f"advisor-bench-{os.getpid()}.jsonl"
    random.seed(0)
    try:
        write(path, options.kind, int(options.gigabytes * 1e9))
        rounds = []
        for _ in range(options.rounds):
            alone, alone_busy, _, rows = timed(ORJSON, path)
            checked, busy, peak, counted = timed(CHECK, path)
            assert rows == counted, (rows, counted)
            rounds.append(
                {
                    "orjson_s": round(alone, 2),
                    "check_s": round(checked, 2),
                    "speed": round(alone / checked, 3),
                    "speed_by_cpu": round(alone_busy / busy, 3),
                }
            )
        size = path.stat().st_size
    finally:
        path.unlink(missing_ok=True)
    print(
        json.dumps(
            {
                "kind": options.kind,
                "bytes": size,
                "rows": int(rows),
                "rounds": rounds,
                "speed_of_orjson": sorted(r["speed"] for r in rounds)[len(rounds) // 2],
                "peak_rss_mb": round(peak / 1e6),
                "cores": os.cpu_count(),
                "load": os.getloadavg()[0],
            }
        )
    )


if __name__ == "__main__":
    main()
