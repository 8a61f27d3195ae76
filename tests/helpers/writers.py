"""Processes that write and lock files."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import hmcgp
from hmcgp.runtime.files import replacing

PREAMBLE = """
import os, sys, types
package = types.ModuleType("hmcgp")
package.__path__ = [sys.argv[1]]
sys.modules["hmcgp"] = package  # the two modules alone: all of the package takes seconds to import
from hmcgp.runtime.files import open_regular, replacing
from hmcgp.runtime.locks import exclusive
from hmcgp.errors import InvalidInput

def refused(function, *arguments):
    try:
        with function(*arguments):
            return "accepted"
    except InvalidInput as error:
        return str(error)

path = sys.argv[2]
"""


@contextmanager
def another_process(script, path):
    """Run a script in a process of its own; it is killed at the end of the block if it is still there."""
    command = [sys.executable, "-c", PREAMBLE + script, str(Path(hmcgp.__file__).parent), str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def output_of(script, path):
    with another_process(script, path) as process:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return out


def write(path, content=b"new"):
    with replacing(path) as file:
        file.write(content)
