"""Errors about files: one line that names the file."""

from __future__ import annotations


class StoreError(ValueError):
    """A file that cannot be read or written; the message is one line and names the file."""


class EmptyError(StoreError):
    """An array without axes, or with one of no length."""
