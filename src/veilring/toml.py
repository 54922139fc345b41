"""TOML within limits: no file, however it is made, keeps a process busy or ends it with a trace."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

__all__ = ("KEY_PARTS_MAX", "TOML_BYTES_MAX", "load_toml", "parse_toml")

# A scenario or a configuration has a few kilobytes; terms with a thousand columns, a hundred.
TOML_BYTES_MAX: Final = 1 << 20
# Python's parser takes time that grows with the square of a dotted key's parts: a minute for
# 50,000 of them in 100 kB. No key of ours has more than four.
KEY_PARTS_MAX: Final = 64

_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY: Final = re.compile(
    rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{KEY_PARTS_MAX},}}"
)


def load_toml(path: Path, *, bytes_max: int = TOML_BYTES_MAX) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        path: The file, in UTF-8.
        bytes_max: The size up to which it is read.

    Raises:
        OSError: If it cannot be read.
        UnicodeDecodeError: If it is not UTF-8.
        ValueError: As `parse_toml`.
    """
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise ValueError(_too_long(bytes_max))
    return parse_toml(content.decode("utf-8"), bytes_max=bytes_max)


def parse_toml(text: str, *, bytes_max: int = TOML_BYTES_MAX) -> dict[str, Any]:
    """Read a text in TOML.

    Args:
        text: The text.
        bytes_max: The number of characters up to which it is read.

    Raises:
        ValueError: If it is not TOML, is longer than `bytes_max`, nests too deeply, or has a key of
            more than `KEY_PARTS_MAX` parts; it says which.
    """
    if len(text) > bytes_max:
        raise ValueError(_too_long(bytes_max))
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {KEY_PARTS_MAX} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its brackets nest too deeply") from None


def _too_long(bytes_max: int) -> str:
    return f"it is longer than {bytes_max:,} bytes"
