"""Machine code that a wheel contains, compiled for a portable baseline of its platform.

Two files in the folder `FOLDER` of the package: `MANIFEST` says what the code was compiled with, and where in the file
`CODE` each function lies, by name and types of its arguments, with its SHA-256.  The code is used if numba, llvmlite,
Python, the platform, the features of the processor and all sources of the package match; otherwise, and for whatever
is damaged, functions are compiled on their first call.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
import numpy as np
from numba.core.compiler import CompileResult

FOLDER, MANIFEST, CODE = "machine_code", "manifest.json", "functions.bin"
FORMAT = 1
# settings of numba that change the code it makes: who sets one wants functions compiled with it
COMPILER_SETTINGS = (
    *("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT", "NUMBA_LOOP_VECTORIZE", "NUMBA_SLP_VECTORIZE"),
    *("NUMBA_BOUNDSCHECK", "NUMBA_DEBUGINFO", "NUMBA_DISABLE_JIT", "NUMBA_ENABLE_AVX"),
)


def function_key(function: Callable[..., Any], signature: Iterable[Any]) -> str:
    """Name of a compiled version of a function: module, name and types of the arguments."""
    return f"{function.__module__}:{function.__qualname__}({', '.join(map(str, signature))})"


def environment() -> dict[str, str]:
    """Versions and platform that compiled code depends on."""
    return {
        "python": f"{platform.python_implementation()} {sys.version_info[0]}.{sys.version_info[1]}{abi_flags()}",
        "platform": llvmlite.binding.get_process_triple(),
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "numpy": np.__version__.split(".")[0],  # major version: rules of type promotion
    }


def abi_flags() -> str:
    """Flags of the interpreter's binary interface, such as "t" for the free-threaded build."""
    return getattr(sys, "abiflags", "")


@dataclass(frozen=True)
class ShippedCode:
    """Compiled functions of a wheel that can be used here.

    Parameters
    ----------
    path : Path
        File with the code.
    functions : mapping of str to (offset, length, SHA-256)
        Where each function lies, by `function_key`; empty if none can be used.
    refused : str
        Why none can be used; empty if they can, or if there are none.
    """

    path: Path
    functions: Mapping[str, tuple[int, int, str]] = field(default_factory=dict)
    refused: str = ""

    def contains(self, function: Callable[..., Any], signature: Any) -> bool:
        """Return whether there is code for these types of arguments."""
        return function_key(function, signature) in self.functions

    def load(self, function: Callable[..., Any], signature: Any, target_context: Any) -> Any:
        """Load the code of a function for these types of arguments, or return None."""
        place = self.functions.get(function_key(function, signature)) if self.functions else None
        data = None if place is None else self._verified(*place)
        if data is None:
            return None
        target_context.refresh()
        return CompileResult._rebuild(target_context, *pickle.loads(data))

    def _verified(self, offset: int, length: int, digest: str) -> bytes | None:
        """Bytes with this digest, or None where the file does not have them."""
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                data = file.read(length)
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == digest else None


def read(package: Path, sources: str) -> ShippedCode:
    """Read which functions an installed package brings along, for sources with this digest."""
    folder = package / FOLDER
    nothing = ShippedCode(folder / CODE)
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError:
        return nothing
    try:
        manifest = json.loads(text)
        digest, functions = manifest["functions_sha256"], manifest["functions"]
        if _digest_of(functions) != digest:
            raise ValueError("digest")
        refused = mismatch(manifest, sources)
    except (ValueError, KeyError, TypeError, AttributeError):
        return ShippedCode(folder / CODE, refused=f"{MANIFEST} is damaged")
    if refused:
        return ShippedCode(folder / CODE, refused=refused)
    return ShippedCode(folder / CODE, {name: tuple(place) for name, place in functions.items()})


def mismatch(manifest: Mapping[str, Any], sources: str) -> str:
    """Why code with this manifest cannot be used here; empty if it can."""
    if manifest["format"] != FORMAT:
        return f"its format is {manifest['format']}, not {FORMAT}"
    for name, here in environment().items():
        if manifest[name] != here:
            return f"it was compiled with {name} {manifest[name]}, and this is {here}"
    if manifest["sources"] != sources:
        return "the package's sources have changed since it was compiled"
    features = llvmlite.binding.get_host_cpu_features()
    absent = [name for name in manifest["cpu_features"] if not features.get(name, False)]
    if absent:
        return f"it is for {manifest['cpu']}, and this processor lacks {', '.join(absent)}"
    settings = [name for name in COMPILER_SETTINGS if name in os.environ]
    return f"{settings[0]} is set" if settings else ""


def write(
    package: Path, sources: str, cpu: str, cpu_features: Iterable[str], functions: Mapping[str, tuple[Any, ...]]
) -> Path:
    """Write compiled functions into a package that is about to become a wheel.

    Parameters
    ----------
    package : Path
        Folder of the package.
    sources : str
        Digest of its sources.
    cpu : str
        Processor, by LLVM's name, that the code was compiled for.
    cpu_features : iterable of str
        Features, by LLVM's names, without which the code is not used.
    functions : mapping of str to tuple
        Compile results as numba reduces them, by `function_key`.

    Returns
    -------
    Path
        Folder with the two files.
    """
    folder = package / FOLDER
    folder.mkdir(exist_ok=True)
    places, offset = {}, 0
    with (folder / CODE).open("wb") as file:
        for name, reduced in sorted(functions.items()):
            data = numba.core.serialize.dumps(_without_annotation(reduced))
            places[name] = (offset, len(data), hashlib.sha256(data).hexdigest())
            offset += file.write(data)
    manifest = {"format": FORMAT, **environment(), "sources": sources, "cpu": cpu, "cpu_features": [*cpu_features]}
    manifest |= {"functions_sha256": _digest_of(places), "functions": places}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return folder


def _digest_of(functions: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(functions, sort_keys=True).encode()).hexdigest()


def _without_annotation(reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Compile result without numba's listing of inferred types, which names files of the machine that compiled."""
    return tuple("" if isinstance(part, str) else part for part in reduced)
