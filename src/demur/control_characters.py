"""Names from files and folders, made fit to be printed."""

from __future__ import annotations

import re

# Escape sequences of terminals begin with a control character. Marks of direction let a name change the
# order in which the text around it is read.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str, *, keep: str = "") -> str:
    r"""Return text with control characters written out, as Python does.

    Parameters
    ----------
    text
        Any text.
    keep
        Characters that stay as they are, as a line feed.

    Examples
    --------
    >>> print(escape_controls("red\x1b[31m, \u202edesrever"))
    red\x1b[31m, \u202edesrever
    """
    return _CONTROLS.sub(lambda found: found[0] if found[0] in keep else _escape(ord(found[0])), text)


def _escape(number: int) -> str:
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
