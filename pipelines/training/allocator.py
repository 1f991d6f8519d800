"""What CUDA's caching allocator would hold: torch's `CUDACachingAllocator` replayed on sizes alone.

A freed block is kept, split and merged by fixed rules, so what is reserved follows from the order of
allocations and frees. Source: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h of torch 2.13,
with the default settings (no expandable segments, no power-of-two rounding) and one stream.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

MIB = 1 << 20
MIN_BLOCK = 512
"""Every size is a multiple of it."""
SMALL = MIB
"""Up to this size a block comes from the small pool, whose segments have SMALL_SEGMENT bytes."""
SMALL_SEGMENT = 2 * MIB
MEDIUM = 10 * MIB
"""Below this size a new segment has MEDIUM_SEGMENT bytes, above it the size rounded to ROUND_LARGE."""
MEDIUM_SEGMENT = 20 * MIB
ROUND_LARGE = 2 * MIB


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


@dataclass(eq=False)
class Block:
    """A part of a segment, in use or free; the parts of a segment form a list."""

    size: int
    address: int
    used: bool = False
    before: Block | None = None
    after: Block | None = None


def _joined(left: Block, right: Block) -> Block:
    """`left` grown by the neighbour to its right."""
    left.size += right.size
    left.after = right.after
    if right.after is not None:
        right.after.before = left
    return left


@dataclass
class Pool:
    """Free blocks in order of size, then address."""

    least_rest: int
    """What must be left of a block for it to be split."""
    keys: list[tuple[int, int]] = field(default_factory=list)
    blocks: dict[int, Block] = field(default_factory=dict)

    def insert(self, block: Block) -> None:
        bisect.insort(self.keys, (block.size, block.address))
        self.blocks[block.address] = block

    def remove(self, block: Block) -> None:
        del self.keys[bisect.bisect_left(self.keys, (block.size, block.address))]
        del self.blocks[block.address]

    def best(self, size: int) -> Block | None:
        """The smallest free block of at least `size`, taken out."""
        place = bisect.bisect_left(self.keys, (size, 0))
        if place == len(self.keys):
            return None
        block = self.blocks[self.keys[place][1]]
        self.remove(block)
        return block


class CachingAllocator:
    """Bytes that are reserved, replayed. `capacity` is what the device can give; None is no limit."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.reserved = 0
        self.most_reserved = 0
        self._small, self._large = Pool(MIN_BLOCK), Pool(SMALL + 1)
        self._used: dict[int, Block] = {}
        self._next_address = 0

    def allocate(self, key: int, size: int) -> None:
        """Takes `size` bytes, known by `key` until they are freed."""
        size = max(MIN_BLOCK, round_up(size, MIN_BLOCK))
        pool = self._pool(size)
        block = pool.best(size) or self._segment(size)
        rest = block.size - size
        if rest >= pool.least_rest:
            tail = Block(rest, block.address + size, before=block, after=block.after)
            if block.after is not None:
                block.after.before = tail
            block.size, block.after = size, tail
            pool.insert(tail)
        block.used = True
        self._used[key] = block

    def free(self, key: int) -> None:
        """Gives a block back to its pool, merged with its free neighbours."""
        block = self._used.pop(key)
        pool = self._pool_of(block)
        block.used = False
        after, before = block.after, block.before
        if after is not None and not after.used:
            pool.remove(after)
            block = _joined(block, after)
        if before is not None and not before.used:
            pool.remove(before)
            block = _joined(before, block)
        pool.insert(block)

    def _pool(self, size: int) -> Pool:
        return self._small if size <= SMALL else self._large

    def _pool_of(self, block: Block) -> Pool:
        """The pool that a block's segment belongs to; small segments have negative addresses."""
        return self._small if block.address < 0 else self._large

    def _segment(self, size: int) -> Block:
        """A new segment from the device; cached ones are given back first where it has no room."""
        small = size <= SMALL
        total = SMALL_SEGMENT if small else MEDIUM_SEGMENT if size < MEDIUM else round_up(size, ROUND_LARGE)
        if self.capacity is not None and self.reserved + total > self.capacity:
            self._release_cached()
        self.reserved += total
        self.most_reserved = max(self.most_reserved, self.reserved)
        start = self._next_address + ROUND_LARGE
        self._next_address = start + total
        return Block(total, -self._next_address if small else start)

    def _release_cached(self) -> None:
        """Gives whole free segments back to the device."""
        for pool in (self._small, self._large):
            for block in list(pool.blocks.values()):
                if block.before is None and block.after is None:
                    pool.remove(block)
                    self.reserved -= block.size
