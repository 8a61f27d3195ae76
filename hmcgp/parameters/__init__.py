"""Hyperparameters: how a class declares them, and the transforms that make them unconstrained."""

from __future__ import annotations

from hmcgp.parameters.declaration import Parameter, parameter

__all__ = ["Parameter", "parameter"]
