"""Python values as JSON and arrays, and back, without running anything that the JSON names.

    None, True, 3, 0.5, "a", [...]     themselves
    everything else                    an object of one key, {kind: content}

        {"float": "nan"}  {"tuple": [...]}  {"set": [...]}  {"dict": [[key, value], ...]}  {"slice": [...]}
        {"path": "run.nc"}
        {"array": "a7"}  {"scalar": "a8"}          numbers and text, kept apart under that name
        {"objects": {"shape": [...], "items": [...], "text": false}}
        {"ufunc": "log"}                           of numpy
        {"Generator": ...}  {"RandomState": ...}  {"SeedSequence": ...}
        {"hmcgp": ["kernels.Matern", {field: value, ...}]}
        {"trusted": ["mine.MyKernel", state]}  {"function": "mine.warp"}

A name is looked up in a table, never imported: that of the dataclasses and named tuples of this package, which are
built by their constructors, with the types of their fields checked; and that of what the caller trusts, which is built
as by `pickle`, from the state it was saved with.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hmcgp.reporting.conformity import field_types, misfits
from hmcgp.runtime.random import generator_from, generator_state, seed_from, seed_state

ARRAY_KINDS = "biufUSMm"  # booleans, numbers, text, dates: no objects, no records
MAX_DEPTH = 150  # of values within values: two Python frames each, of the thousand that there are by default
JSON: TypeAlias = Any
ROOMS = ("numerics", "estimators", "evidence", "kernels", "likelihoods", "priors", "samplers")
NOT_SAVED = ("hmcgp.estimators.comparison",)

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_UFUNCS = {name: f for name, f in vars(np).items() if isinstance(f, np.ufunc)}
_BY_TYPE: dict[type[Any], str] = {
    **{cls: cls.__name__ for cls in (float, tuple, set, frozenset, dict, slice)},
    **{cls: cls.__name__ for cls in (np.random.Generator, np.random.RandomState, np.random.SeedSequence)},
    np.ndarray: "array",
}


class _Plain(NamedTuple):
    """A kind of value that is written as a plainer one: how to make that, its type, and the way back."""

    make: Callable[[Any], Any]
    type: type[Any]
    back: Callable[[Any], Any]


_PLAIN = {
    "float": _Plain(str, str, _FLOATS.__getitem__),
    "tuple": _Plain(list, list, tuple),
    "set": _Plain(lambda value: sorted(value, key=repr), list, set),  # the same file every time
    "frozenset": _Plain(lambda value: sorted(value, key=repr), list, frozenset),
    "slice": _Plain(lambda value: [value.start, value.stop, value.step], list, lambda parts: slice(*parts)),
    "path": _Plain(str, str, Path),
    "ufunc": _Plain(lambda value: value.__name__, str, _UFUNCS.__getitem__),
    "Generator": _Plain(generator_state, dict, generator_from),
    "RandomState": _Plain(generator_state, dict, generator_from),
    "SeedSequence": _Plain(seed_state, dict, seed_from),
}


class Refused(Exception):
    """Something that cannot be written or read; the message goes on after "this GPClassifier" or the file's name."""


class Untrusted(Exception):
    """Names of classes and functions that are neither the package's own nor trusted."""


def own_classes() -> dict[str, type[Any]]:
    """Return the dataclasses and named tuples of this package that a file may name, as `kernels.Matern`."""
    found = {}
    for name, module in list(sys.modules.items()):
        package, _, rest = name.partition(".")
        room = rest.partition(".")[0]
        if package != "hmcgp" or room not in ROOMS or name in NOT_SAVED:
            continue
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == name and (is_dataclass(value) or is_record(value)):
                found[f"{room}.{value.__name__}"] = value
    return found


def own_fields(cls: type[Any]) -> list[str]:
    """Return the names of the fields of a dataclass or named tuple from which it is built."""
    return list(cls._fields) if is_record(cls) else [f.name for f in fields(cls) if f.init]


def is_record(cls: type[Any]) -> bool:
    """Return whether a class is a named tuple."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def full_name(thing: Any) -> str:
    """Return the name of a class or function, module first."""
    return f"{thing.__module__}.{thing.__qualname__}"


class Encoder:
    """Turns values into JSON; `arrays` collects what is kept apart, by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self._known: dict[int, str] = {}  # one array in two places is written once
        self._own = {cls: name for name, cls in own_classes().items()}

    def encode(self, value: Any, where: str, depth: int = 0) -> JSON:
        """Encode a value; `where` names it in errors."""
        if depth > MAX_DEPTH:
            raise Refused(f"holds values nested more than {MAX_DEPTH} deep in {where[:60]!r}: does one hold itself?")
        if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
            return value
        if type(value) is list:
            return self._all(value, where, depth)
        kind = self._kind(value)
        if kind in _PLAIN:
            return {kind: self.encode(_PLAIN[kind].make(value), where, depth)}
        return {kind: getattr(self, f"_encode_{kind}")(value, where, depth)}

    def _kind(self, value: Any) -> str:
        """Return the name of the kind that a value is written as."""
        if type(value) in self._own:
            return "hmcgp"
        if type(value) is np.ndarray and value.dtype.kind in "OT":
            return "objects"
        if type(value) in _BY_TYPE:
            return _BY_TYPE[type(value)]
        if isinstance(value, np.ufunc) and _UFUNCS.get(value.__name__) is value:
            return "ufunc"
        kinds = ((np.generic, "scalar"), (Path, "path"), (FunctionType, "function"))
        return next((kind for cls, kind in kinds if isinstance(value, cls)), "trusted")

    def _all(self, values: Iterable[Any], where: str, depth: int) -> list[JSON]:
        return [self.encode(value, f"{where}[{i}]", depth + 1) for i, value in enumerate(values)]

    def _encode_dict(self, value: dict[Any, Any], where: str, depth: int) -> JSON:
        encode = self.encode
        return [[encode(k, where, depth + 1), encode(v, f"{where}.{k}", depth + 1)] for k, v in value.items()]

    def _encode_scalar(self, value: np.generic, where: str, depth: int) -> JSON:
        return self._kept_apart(np.asarray(value), where)

    def _encode_array(self, value: NDArray[Any], where: str, depth: int) -> JSON:
        if id(value) not in self._known:
            self._known[id(value)] = self._kept_apart(value, where)  # alive as long as `arrays`, and so is its id
        return self._known[id(value)]

    def _encode_objects(self, value: NDArray[Any], where: str, depth: int) -> JSON:
        items = self._all(value.ravel().tolist(), where, depth)
        return {"shape": list(value.shape), "items": items, "text": value.dtype.kind == "T"}

    def _kept_apart(self, array: NDArray[Any], where: str) -> str:
        if array.dtype.kind not in ARRAY_KINDS:
            raise Refused(f"holds, as {where}, numbers of the type {array.dtype}, which cannot be written.")
        name = f"a{len(self.arrays)}"
        self.arrays[name] = array
        return name

    def _encode_hmcgp(self, value: Any, where: str, depth: int) -> JSON:
        content = {name: getattr(value, name) for name in own_fields(type(value))}
        wrong = misfits(content, field_types(type(value)))
        if wrong:
            raise Refused(f"holds, as {where}, a {type(value).__name__} that could not be read again: {wrong}.")
        encoded = {name: self.encode(part, f"{where}.{name}", depth + 1) for name, part in content.items()}
        return [self._own[type(value)], encoded]

    def _encode_trusted(self, value: Any, where: str, depth: int) -> JSON:
        state = _state(value, where)
        return [self._encode_function(type(value), where, depth), self.encode(state, where, depth + 1)]

    def _encode_function(self, thing: Any, where: str, depth: int) -> JSON:
        """Return the name of a class or function that can be found again: whoever loads must pass it as trusted."""
        found: Any = sys.modules.get(thing.__module__)
        for part in thing.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is not thing or thing.__module__ == "builtins":
            raise Refused(
                f"holds, as {where}, {thing.__qualname__}, which no file can name. Define functions and classes of "
                "your own at the top level of a module, not in a lambda or inside a function."
            )
        return full_name(thing)


def _state(value: Any, where: str) -> Any:
    """Return the state that `pickle` would keep of an object of a class that is not ours."""
    builtin = (str, int, float, complex, bytes, bytearray, list, dict, set, frozenset, tuple, type, memoryview)
    if isinstance(value, tuple) and is_record(type(value)):
        return tuple(value)
    if isinstance(value, builtin) or type(value).__module__.partition(".")[0] in ("builtins", "numpy", "pandas"):
        raise Refused(f"holds, as {where}, a {type(value).__name__}, which cannot be written: {str(value)[:60]}")
    return value.__getstate__()


def _restored(cls: type[Any], state: Any) -> Any:
    """Return an object of a trusted class with the state it was saved with, as `pickle` would."""
    new: Any = object.__new__(cls)
    if hasattr(new, "__setstate__"):
        new.__setstate__(state)
        return new
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for key, value in {**(attributes or {}), **(slots or {})}.items():
        object.__setattr__(new, key, value)
    missing = [f.name for f in fields(cls) if not hasattr(new, f.name)] if is_dataclass(cls) else []
    if missing:
        raise Refused(f"holds a {cls.__name__} without {', '.join(missing)}")
    return new


class Decoder:
    """Turns JSON back into values, of the classes of this package and those trusted; arrays are read by their names."""

    def __init__(self, read_array: Callable[[str], NDArray[Any]], trusted: Iterable[Any] = ()) -> None:
        self._read, self._read_already = read_array, dict[str, NDArray[Any]]()
        self._own = own_classes()
        self._trusted: dict[str, Any] = {}
        for thing in trusted:  # what was defined in a script or notebook is elsewhere the next time
            self._trusted |= {full_name(thing): thing, f"__main__.{thing.__qualname__}": thing}

    def check_names(self, tree: JSON) -> None:
        """Raise Untrusted, with all names that are neither ours nor trusted, before anything is built."""
        unknown: list[str] = []
        waiting = [tree]
        while waiting:
            node = waiting.pop()
            match node:
                case {"trusted": [str(name), *_]} | {"function": str(name)} if name not in self._trusted:
                    unknown.append(name)
            waiting.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
        if unknown:
            raise Untrusted(*dict.fromkeys(unknown))

    def decode(self, node: JSON, depth: int = 0) -> Any:
        """Decode a value; anything may be raised for JSON that no Encoder has written."""
        if depth > MAX_DEPTH:
            raise Refused(f"holds values nested more than {MAX_DEPTH} deep")
        if isinstance(node, list):
            return self._all(node, depth)
        if not isinstance(node, dict):
            return node
        [(kind, content)] = node.items()
        if kind not in _PLAIN:
            return getattr(self, f"_decode_{kind}")(content, depth)
        plain = self.decode(content, depth)
        if type(plain) is not _PLAIN[kind].type:
            raise TypeError(f"a {kind} is written as a {type(plain).__name__}")
        return _PLAIN[kind].back(plain)

    def _all(self, nodes: JSON, depth: int) -> list[Any]:
        if not isinstance(nodes, list):
            raise TypeError(f"a list is a {type(nodes).__name__}")
        return [self.decode(node, depth + 1) for node in nodes]

    def _decode_dict(self, content: JSON, depth: int) -> dict[Any, Any]:
        found = {self.decode(key, depth + 1): self.decode(value, depth + 1) for key, value in content}
        if len(found) < len(content):
            raise Refused("holds a dict with a key twice")
        return found

    def _decode_array(self, content: str, depth: int) -> NDArray[Any]:
        if content not in self._read_already:
            self._read_already[content] = self._read(content)
        return self._read_already[content]

    def _decode_scalar(self, content: str, depth: int) -> Any:
        array = self._decode_array(content, depth)
        if array.shape != ():
            raise Refused(f"holds an array of shape {array.shape} where one number belongs")
        return array[()]

    def _decode_objects(self, content: Mapping[str, JSON], depth: int) -> NDArray[Any]:
        items, shape = self._all(content["items"], depth), tuple(content["shape"])
        found = np.empty(len(items), dtype=np.dtypes.StringDType() if content["text"] else object)
        found[:] = items
        return found.reshape(shape)

    def _decode_hmcgp(self, content: JSON, depth: int) -> Any:
        name, given = content
        cls = self._own[name]
        values = {key: self.decode(value, depth + 1) for key, value in given.items()}
        differing = set(values) ^ set(own_fields(cls))
        if differing:
            raise Refused(f"holds a {cls.__name__} with other fields than it has: {', '.join(sorted(differing))}")
        wrong = misfits(values, field_types(cls))
        if wrong:
            raise Refused(f"holds a {cls.__name__} with the wrong types of fields: {wrong}")
        return cls(**values)

    def _decode_trusted(self, content: JSON, depth: int) -> Any:
        name, node = content
        cls, state = self._trusted[name], self.decode(node, depth + 1)
        if not isinstance(cls, type):
            raise TypeError(f"{name} is not a class")
        if is_record(cls):
            return cls._make(state)  # type: ignore[attr-defined]
        return _restored(cls, state)

    def _decode_function(self, content: str, depth: int) -> Any:
        found = self._trusted[content]
        if not isinstance(found, FunctionType):
            raise TypeError(f"{content} is not a function")
        return found
