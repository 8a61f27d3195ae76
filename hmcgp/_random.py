"""Random streams: everything a user may pass as `random_state` becomes a `numpy.random.Generator`.

scikit-learn's `check_random_state` refuses a Generator, and numpy's `default_rng` does not know a seed
from a stream that others share, so this is the one door.  The global state of `numpy.random` is never touched.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from hmcgp.errors import InvalidInput

RandomStateLike: TypeAlias = (
    int | np.integer | np.random.SeedSequence | np.random.Generator | np.random.RandomState | None
)


def check_random_state(random_state: object) -> None:
    """Refuse what names no source of randomness, without drawing from it."""
    sources = (np.random.Generator, np.random.SeedSequence, np.random.RandomState)
    is_seed = (
        isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool) and int(random_state) >= 0
    )
    if not (random_state is None or is_seed or isinstance(random_state, sources)):
        raise InvalidInput(
            "'random_state' must be None, an integer >= 0, or a numpy SeedSequence, Generator or RandomState; "
            f"got {random_state!r}."
        )


def as_generator(random_state: RandomStateLike = None) -> np.random.Generator:
    """Return a Generator for whatever names a source of randomness.

    Parameters
    ----------
    random_state : None, int, SeedSequence, Generator or RandomState
        None draws fresh entropy.  An int or a SeedSequence is a value: the same one gives the same stream every time.
        A Generator is used as it is, and a RandomState is advanced by one draw: both move on from call to call.

    Returns
    -------
    numpy.random.Generator
    """
    check_random_state(random_state)
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.SeedSequence):
        return np.random.default_rng(_copy(random_state))
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    return np.random.default_rng(random_state if random_state is None else int(random_state))


def spawn_generators(random_state: RandomStateLike, n: int) -> list[np.random.Generator]:
    """Return n independent streams; stream i does not depend on n.

    Parameters
    ----------
    random_state : None, int, SeedSequence, Generator or RandomState
        As in `as_generator`.
    n : int
        Number of streams.

    Returns
    -------
    list of numpy.random.Generator, of length n
    """
    rng = as_generator(random_state)
    try:
        return rng.spawn(n)
    except TypeError:  # a bit generator that was not seeded by a SeedSequence cannot spawn
        return np.random.default_rng(rng.integers(0, 2**32, size=4, dtype=np.uint32)).spawn(n)


def restore_generator(state: Mapping[str, Any]) -> np.random.Generator:
    """Return a Generator at a known place of its stream.

    Parameters
    ----------
    state : mapping
        `Generator.bit_generator.state` as it was then.

    Returns
    -------
    numpy.random.Generator
    """
    bit_generator = getattr(np.random, state["bit_generator"])(0)
    bit_generator.state = state
    return np.random.Generator(bit_generator)


def _copy(seed: np.random.SeedSequence) -> np.random.SeedSequence:
    # spawning counts on the sequence itself: without a copy the user's seed would change under their hands
    return np.random.SeedSequence(
        entropy=seed.entropy,
        spawn_key=seed.spawn_key,
        pool_size=seed.pool_size,
        n_children_spawned=seed.n_children_spawned,
    )
