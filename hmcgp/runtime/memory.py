"""Check, before a run starts, that it fits into the memory of the machine; and keep its work space between evaluations.

The need of a run is estimated low, and the memory available high (swap space included, files in the cache given up):
only runs that cannot work are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.runtime.parallel import on_cluster

MARGIN = 1.1  # times the memory that is free: beyond, a run cannot work
_LARGEST_KEPT = 2**25 - 2**16  # bytes of an array, up to which glibc learns from freeing it


class WorkSpace(NamedTuple):
    """Memory that an evaluation takes, at least."""

    nbytes: int
    what: str  # its purpose, in the words of a message
    instead: Callable[[int], str]  # advice for so many bytes


def check_memory(density: object, n_workers: int, *, draws: int = 0, bytes_per_draw: int = 0) -> None:
    """Refuse a run that needs clearly more memory than there is, and say which settings would fit.

    Each worker needs the `work_space` of the density, if it has one; those of a cluster do not count.  `draws` are
    those of all chains together, warm-up included.
    """
    free = available_memory()
    if free is None:
        return
    limit = MARGIN * free
    kept = draws * bytes_per_draw
    if kept > limit:
        raise InvalidInput(
            f"{draws:,} draws, warm-up and all chains together, take {amount(kept)}, and {amount(free)} of memory are "
            f"free: keep fewer than {int(free // bytes_per_draw):,}. A few thousand are enough for most purposes."
        )
    work: WorkSpace | None = getattr(density, "work_space", None)
    if work is None or on_cluster() or kept + n_workers * work.nbytes <= limit:
        return
    fitting = int((free - kept) // work.nbytes)
    each = f" for each of {n_workers} workers" if n_workers > 1 else ""
    fewer = f"n_jobs={fitting} needs {amount(kept + fitting * work.nbytes)}; or " if fitting > 0 else ""
    instead = fewer + work.instead(max(free - kept, 0) // (n_workers if fitting > 0 else 1))
    raise InvalidInput(
        f"this takes at least {amount(kept + n_workers * work.nbytes)} of memory ({work.what}, {amount(work.nbytes)}"
        f"{each}), and {amount(free)} are free: {instead}."
    )


def keep_work_space(work: WorkSpace) -> None:
    """Let the allocator of this process keep what an evaluation frees, so that the next one finds it there.

    Otherwise the C library may return the matrices to the system after every evaluation, which then maps and clears
    their pages anew: a fifth to a quarter of the time of an evaluation at 300 to 1000 rows, when it happens.  glibc
    learns from what a program frees: an array of 32 MB or less raises the size from which arrays are mapped one by one
    to its own, and the free memory at the end of the heap that is kept to twice that (mallopt(3), "dynamic mmap
    threshold").  So one array of twice the work space is allocated, never touched, and freed.  At most 64 MB stay with
    the process for each of its heaps, as after any array of that size.  Nothing happens where the environment sets
    these thresholds, nor with other allocators.
    """
    np.empty(min(2 * work.nbytes, _LARGEST_KEPT), dtype=np.uint8)


def amount(nbytes: float) -> str:
    """Format a number of bytes, such as 1.5 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes / 1e3:.3g} kB"


def array_bytes(thing: object, depth: int = 4) -> int:
    """Memory of the arrays in the attributes of an object, or the items of a tuple, and of those inside them."""
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    parts = thing if isinstance(thing, tuple) else getattr(thing, "__dict__", {}).values()
    return sum(array_bytes(part, depth - 1) for part in parts) if depth else 0


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes available to this process, or None where the system does not tell.

    On Linux, the least that the machine and the control groups of the process have left; elsewhere all memory.
    """
    try:
        return min([_of_machine(root), *_of_control_groups(root)])
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def _of_machine(system: Path) -> int:
    path = system / "proc/meminfo"
    if not path.exists():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    fields = dict(line.split(":", 1) for line in path.read_text(encoding="utf-8").splitlines())
    return sum(1024 * int(fields[name].split()[0]) for name in ("MemAvailable", "SwapFree"))


def _of_control_groups(system: Path) -> Iterator[int]:
    """Yield the memory left under every limit above the process, by both versions of the interface."""
    path = system / "proc/self/cgroup"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            root, limit, usage, cache = system / "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, limit = system / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            usage, cache = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        folder = root / group.lstrip("/")
        for place in (folder, *folder.parents):
            if not place.is_relative_to(root):
                break
            if (place / limit).exists() and (most := (place / limit).read_text(encoding="utf-8").strip()) != "max":
                stat = dict(row.split() for row in (place / "memory.stat").read_text(encoding="utf-8").splitlines())
                yield int(most) - int((place / usage).read_text(encoding="utf-8")) + int(stat[cache])
