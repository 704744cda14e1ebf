"""Validation: every measurement against a truth that was planted for it.

A *check* is a module of `diagnostics.validation.checks` with one function, `rows(bench)`: it plants
something, measures it with the code that the experiments use, and gives a `Row` for each number, with what
it should be and how far off it may be. Adding a check is adding one file there (docs/validation.md).
"""

from diagnostics.validation.rows import Row

__all__ = ["Row"]
