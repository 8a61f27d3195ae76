"""Errors for positional arguments of kernels whose shape parameter could be mistaken for the variance."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from hmcgp.errors import InvalidInput

KernelClass = TypeVar("KernelClass", bound=type[Any])


def needs_names(setting: str, example: float, *, most: int | None = None) -> Callable[[KernelClass], KernelClass]:
    """Decorate a kernel: positional arguments that could be meant for another parameter raise `InvalidInput`.

    Parameters
    ----------
    setting : str
        Name of the parameter that a positional number could be meant for: "nu".
    example : float
        Value of it, for the message.
    most : int, optional
        Only up to this many positional arguments, without `setting` among the named ones, raise the error.  Default:
        any number of them.

    Returns
    -------
    callable
        Decorator that returns the class, with a constructor that checks its arguments.
    """

    def decorate(kernel: KernelClass) -> KernelClass:
        init = kernel.__init__  # type: ignore[misc]  # of this class: subclasses have their own

        @functools.wraps(init)
        def checked(self: Any, *positional: Any, **named: Any) -> None:
            if positional and (most is None or (len(positional) <= most and setting not in named)):
                name, given = type(self).__name__, ", ".join(map(repr, positional))
                raise InvalidInput(
                    f"{name}({given}) does not say which parameter is meant. Name it: {name}({setting}={example!r}) "
                    f"for '{setting}', {name}(variance={positional[0]!r}) for the variance."
                )
            init(self, *positional, **named)

        kernel.__init__ = checked  # type: ignore[misc]
        return kernel

    return decorate
