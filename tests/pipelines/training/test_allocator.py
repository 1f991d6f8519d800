"""The replay of CUDA's caching allocator, by torch's documented rules."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.training.allocator import MIB, CachingAllocator


def test_small_blocks_share_a_segment_of_two_mib() -> None:
    allocator = CachingAllocator()
    for key in range(4):
        allocator.allocate(key, 300_000)
    assert allocator.reserved == 2 * MIB


def test_medium_blocks_share_a_segment_of_twenty_mib() -> None:
    allocator = CachingAllocator()
    for key in range(4):
        allocator.allocate(key, 5 * MIB)
    assert allocator.reserved == 20 * MIB
    allocator.allocate(4, 2 * MIB)
    assert allocator.reserved == 40 * MIB


def test_a_large_block_has_its_own_segment_and_is_used_again() -> None:
    allocator = CachingAllocator()
    allocator.allocate(0, 100 * MIB + 1)
    assert allocator.reserved == 102 * MIB
    allocator.free(0)
    assert allocator.reserved == 102 * MIB
    allocator.allocate(1, 60 * MIB)
    allocator.allocate(2, 40 * MIB)
    assert allocator.reserved == 102 * MIB


def test_a_cached_block_that_is_split_cannot_serve_its_old_size() -> None:
    """What makes more be reserved than was ever allocated."""
    allocator = CachingAllocator()
    allocator.allocate(0, 1000 * MIB)
    allocator.free(0)
    allocator.allocate(1, 30 * MIB)
    allocator.allocate(2, 1000 * MIB)
    assert allocator.reserved == 2000 * MIB


def test_neighbours_merge_when_they_are_freed() -> None:
    allocator = CachingAllocator()
    allocator.allocate(0, 90 * MIB)
    allocator.free(0)
    for key in range(3):
        allocator.allocate(key, 30 * MIB)
    for key in (0, 2, 1):
        allocator.free(key)
    allocator.allocate(3, 90 * MIB)
    assert allocator.reserved == 90 * MIB


def test_the_smallest_block_that_is_large_enough_is_taken() -> None:
    allocator = CachingAllocator()
    allocator.allocate(0, 200 * MIB)
    allocator.allocate(1, 50 * MIB)
    allocator.free(0)
    allocator.free(1)
    allocator.allocate(2, 50 * MIB)
    allocator.allocate(3, 200 * MIB)
    assert allocator.reserved == 250 * MIB


def test_a_full_device_gives_cached_segments_back_first() -> None:
    allocator = CachingAllocator(capacity=300 * MIB)
    allocator.allocate(0, 200 * MIB)
    allocator.free(0)
    allocator.allocate(1, 250 * MIB)
    assert allocator.reserved == 250 * MIB
    assert allocator.most_reserved == 250 * MIB


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 64 * MIB), st.integers(0, 10)), min_size=1, max_size=60),
)
def test_blocks_in_use_never_overlap_and_are_all_reserved(steps: list[tuple[int, int]]) -> None:
    """Every used block lies apart from the others, and no more is in use than is reserved."""
    allocator = CachingAllocator()
    live: list[int] = []
    for key, (size, choice) in enumerate(steps):
        allocator.allocate(key, size)
        live.append(key)
        if choice < len(live) and choice % 2:
            allocator.free(live.pop(choice))
        spans = sorted((b.address, b.address + b.size) for b in allocator._used.values())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert sum(end - start for start, end in spans) <= allocator.reserved
    for key in live:
        allocator.free(key)
    assert sum(size for size, _ in allocator._small.keys + allocator._large.keys) == allocator.reserved
