"""Random streams: a `numpy.random.Generator` for every kind of `random_state`.

scikit-learn's `check_random_state` refuses a Generator, and numpy's `default_rng` does not distinguish a seed from a
stream that others share.  The global state of `numpy.random` is never used.
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
    """Raise InvalidInput unless `random_state` is a seed or a random stream; nothing is drawn from it."""
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
    """Return a Generator for a seed or a random stream.

    None draws fresh entropy.  An int or a SeedSequence is a value: the same one gives the same stream every time.  A
    Generator is used as it is, and a RandomState is advanced by one draw: both move on from call to call.
    """
    check_random_state(random_state)
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.SeedSequence):
        # spawning changes the sequence: without a copy, the user's seed would give other streams next time
        return np.random.default_rng(np.random.SeedSequence(**random_state.state))
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    return np.random.default_rng(random_state if random_state is None else int(random_state))


def spawn_generators(random_state: RandomStateLike, n: int) -> list[np.random.Generator]:
    """Return n independent streams (see `as_generator`); stream i does not depend on n."""
    rng = as_generator(random_state)
    try:
        return rng.spawn(n)
    except TypeError:  # a bit generator that was not seeded by a SeedSequence cannot spawn
        return np.random.default_rng(rng.integers(0, 2**32, size=4, dtype=np.uint32)).spawn(n)


def restore_generator(state: Mapping[str, Any]) -> np.random.Generator:
    """Return a Generator that continues the stream whose `Generator.bit_generator.state` was stored."""
    bit_generator = getattr(np.random, state["bit_generator"])(0)
    bit_generator.state = state
    return np.random.Generator(bit_generator)


# -- as plain values, for files --------------------------------------------------------------------------------------

_BIT_GENERATORS: dict[str, type[np.random.BitGenerator]] = {
    cls.__name__: cls
    for cls in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
_MOST_POOL = 64  # largest accepted pool of a SeedSequence, in words; 4 by default


def seed_state(seed: np.random.SeedSequence) -> dict[str, Any]:
    """Return a SeedSequence as plain numbers."""
    return dict(seed.state)


def seed_from(state: Mapping[str, Any]) -> np.random.SeedSequence:
    """Return the SeedSequence of a `seed_state`; TypeError or ValueError if it is malformed."""
    if set(state) != set(np.random.SeedSequence(0).state) or not 4 <= state["pool_size"] <= _MOST_POOL:
        raise ValueError("not the state of a SeedSequence")
    return np.random.SeedSequence(**state)


def generator_state(rng: np.random.Generator | np.random.RandomState) -> dict[str, Any]:
    """Return the position of a random stream and the seed of its children, as plain numbers."""
    if isinstance(rng, np.random.RandomState):
        return {"state": rng.get_state(legacy=False), "seed": None}
    seed = rng.bit_generator.seed_seq
    if type(seed) is not np.random.SeedSequence or type(rng.bit_generator).__name__ not in _BIT_GENERATORS:
        raise InvalidInput(
            f"a Generator over {rng.bit_generator} cannot be saved: only those of numpy can, seeded by a SeedSequence "
            "or a number. Set 'random_state' to an integer first."
        )
    return {"state": dict(rng.bit_generator.state), "seed": seed_state(seed)}


def generator_from(content: Mapping[str, Any]) -> np.random.Generator | np.random.RandomState:
    """Return the random stream of a `generator_state`; raises if it is malformed."""
    state, seed = content["state"], content["seed"]
    if seed is None:
        old = np.random.RandomState(0)
        _check_like(state, old.get_state(legacy=False))
        old.set_state(state)
        return old
    bit_generator = _BIT_GENERATORS[state["bit_generator"]](seed_from(seed))
    _check_like(state, bit_generator.state)
    bit_generator.state = state
    return np.random.Generator(bit_generator)


def _check_like(state: Any, example: Any) -> None:
    """Raise for a state that numpy would accept and then read beyond its arrays."""
    if type(state) is not type(example):
        raise TypeError("not the state of a random stream")
    if isinstance(example, dict):
        if set(state) != set(example):
            raise ValueError("not the state of a random stream")
        for key, value in example.items():
            _check_like(state[key], value)
        most = {"pos": 624, "buffer_pos": 4}  # how far MT19937 and Philox have read their arrays
        if any(key in most and not 0 <= state[key] <= most[key] for key in state):
            raise ValueError("a random stream stands beyond its end")
    elif isinstance(example, np.ndarray) and (state.shape, state.dtype) != (example.shape, example.dtype):
        raise ValueError("not the state of a random stream")
