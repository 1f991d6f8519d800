"""One of two DDP processes over gloo: prints the bytes that wrapping and a step add. Takes rank and file."""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist

from pipelines.training.trace_worker import Tracker


def main(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    tracker = Tracker()
    with tracker:
        model = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(4)])
        weights = tracker.live
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        buckets = tracker.live - weights
        rows = torch.ones(2, 512)
        before = tracker.live
        for _ in range(3):
            model.zero_grad(set_to_none=True)
            wrapped(rows).sum().backward()
        gradients = tracker.live - before
    dist.destroy_process_group()
    print(json.dumps({"weights": weights, "buckets": buckets, "gradients": gradients}))  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
