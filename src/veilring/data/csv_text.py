"""From the bytes of a CSV file to its text: encodings and separators are named, never guessed."""

import codecs
from collections.abc import Sequence
from typing import Final

from veilring.errors import InputError

# The longer marks first: that of UTF-32 begins with that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_SEPARATORS: Final = {
    ",": ("commas", ","),
    ";": ("semicolons", "';'"),
    "\t": ("tabs", "tab"),
    "|": ("vertical bars", "'|'"),
}
_SAVE: Final = "UTF-8: save the file in this encoding"


def decode(file: str, content: bytes) -> str:
    """Return the text of a file in UTF-8, without the mark that it may begin with.

    Args:
        file: The name of the file.
        content: All of it.

    Raises:
        InputError: If it is in another encoding; it names the line of the first byte that does not
            fit.
    """
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), None)
    if encoding is None and b"\0" in content:
        encoding = "UTF-16, or is no text"  # UTF-8 has a zero byte for the character 0 alone
    if encoding is not None:
        raise InputError(file, f"in {encoding}", _SAVE)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"not in UTF-8, but perhaps in Latin-1 (byte 0x{content[error.start]:02x})"
        raise InputError(f"{file}, line {line}", found, _SAVE) from None


def require_separator(file: str, names: Sequence[str], separator: str, *, offered: bool) -> None:
    """Refuse a header of one cell that has another separator in it.

    Args:
        file: The name of the file.
        names: The cells of the header.
        separator: What was taken for the separator.
        offered: Whether another separator may be chosen.

    Raises:
        InputError: If there is one; it names both separators.
    """
    if len(names) != 1:
        return
    for other, (word, option) in _SEPARATORS.items():
        if other != separator and other in names[0]:
            chosen = _SEPARATORS[separator][0]
            choose = f"; run, compare and deploy take --separator {option}" if offered else ""
            allowed = f"{chosen} as the separator: save the file with {chosen}{choose}"
            raise InputError(f"{file}, line 1", f"separated by {word}", allowed)
