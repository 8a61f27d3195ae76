"""Parts of the draws that predictions keep between calls, in bounded memory.

Entries are added until KEPT_BYTES are full; draws beyond are solved whenever they are needed.  So a call has the same
results, up to rounding, whether its draws are kept or not.  Averages come first: what results for each draw, and joint
ones, keep (`part`) may fill PARTS_BYTES of these, and is dropped where averages need the room.  Several threads may
predict at the same time: an entry is the same whoever adds it.  Nothing is kept in a pickle, nor in a copy.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

from hmcgp.runtime.memory import array_bytes

KEPT_BYTES = 2**30  # of predictors, mostly one n x n matrix for each draw
PARTS_BYTES = 2**29  # of these at most, for parts


class KeptPredictors:
    """Predictors of the draws of one model, by their numbers.

    Parameters
    ----------
    model : object
        The model that the predictors belong to; for others nothing is found.
    """

    def __init__(self, model: object = None) -> None:
        self._model = model
        self._entries: dict[Hashable, Any] = {}
        self._nbytes = 0
        self._whole = self  # what this is a part of
        self._parts: dict[str, KeptPredictors] = {}
        self._lock = threading.Lock()  # of the whole and its parts

    def __reduce__(self) -> tuple[type[KeptPredictors], tuple[()]]:
        return KeptPredictors, ()

    def belongs_to(self, model: object) -> bool:
        """Whether the predictors are those of this model."""
        return self._model is model and model is not None

    def part(self, name: str) -> KeptPredictors:
        """Entries of other draws, or of another sort, under the same bound and cleared with these."""
        whole = self._whole
        with whole._lock:
            part = self._parts.get(name)
            if part is None:
                part = self._parts[name] = KeptPredictors(self._model)
                part._whole, part._lock = whole, whole._lock
            return part

    @property
    def nbytes(self) -> int:
        """Memory of all that is kept, parts included."""
        return self._nbytes + sum(part.nbytes for part in list(self._parts.values()))

    def get(self, key: Hashable) -> Any:
        """Entry of this key, or None."""
        return self._entries.get(key)

    def has_room(self, nbytes: int) -> bool:
        """Whether an entry of so many bytes would be kept."""
        whole = self._whole
        if self is whole:  # parts give way
            return self._nbytes + nbytes <= KEPT_BYTES
        in_parts = whole.nbytes - whole._nbytes
        return whole.nbytes + nbytes <= KEPT_BYTES and in_parts + nbytes <= PARTS_BYTES

    def keep(self, key: Hashable, entry: Any) -> bool:
        """Keep an entry if there is room; return whether there is one of this key."""
        nbytes = array_bytes(entry)
        with self._lock:
            if key not in self._entries and self.has_room(nbytes):
                if self.nbytes + nbytes > KEPT_BYTES:
                    self._drop_parts()
                self._entries[key] = entry
                self._nbytes += nbytes
            return key in self._entries

    def all_of(self, n: int) -> list[Any] | None:
        """Entries 0, …, n - 1, or None unless all of them are kept."""
        found = [self._entries.get(k) for k in range(n)]
        return None if None in found else found

    def clear(self) -> None:
        """Drop everything, of all parts."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        self._entries, self._nbytes = {}, 0
        self._drop_parts()

    def _drop_parts(self) -> None:
        for part in self._parts.values():
            part._drop()
