"""The typist detects the mistakes of a page."""

from pathlib import Path

import pytest
from docs._ext.served import Mistyped
from docs._ext.typist import type_page


def _type(text: str, folder: Path) -> None:
    page = folder / "pages" / "page.md"
    page.parent.mkdir()
    page.write_text(text, encoding="utf-8")
    type_page(page, folder)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```sh\ntrue\nfalse\ntrue\n```\n", "line 1: .*ended with 1"),
        ("```sh\nfalse | cat\n```\n", "ended with 1"),
        ("\n```python\nimport nothing_of_that_name\n```\n", "line 2: .*ended with 1"),
        ("```console\n$ echo one\ntwo\n```\n", "and prints\none"),
        ("```console\n$ echo one; echo two\none\n```\n", "and prints\none\ntwo"),
        (
            "```console\n$ echo '│ 1 │'; echo '│ 2 │'\n│ 1 │ │ 2 │\n```\n",
            "and prints\n│ 1 │\n│ 2 │",
        ),
        ("```console\n$ true\nveilring: it failed\n```\n", "ended with 0"),
        ("<!-- in CI: 1 for 2 -->\n```sh\necho 3\n```\n", "there is no 2"),
        ("<!-- same: page.md -->\n```sh\necho > page.md\n```\n", "page.md is not what"),
        ("```sh\nveilring serve nothing.toml\ntrue\n```\n", "does not become ready"),
    ],
)
def test_a_wrong_output_is_detected(text: str, wrong: str, tmp_path: Path) -> None:
    """A page whose output differs from the shown one is refused, with the line."""
    with pytest.raises(Mistyped, match=f"(?s)page.md, {wrong}|{wrong}"):
        _type(text, tmp_path)


def test_comments_prepare_a_block(tmp_path: Path) -> None:
    """Before a block runs, its files are written, other commands run, and words are replaced."""
    _type(
        "<!-- file: a/b.txt -->\n```text\nport 7311 of ada.example\n```\n\n"
        "<!-- first: echo first > log -->\n<!-- in CI: two for 2 -->\n"
        "<!-- with: c.csv from iris -->\n"
        "```sh\necho 2 >> log\ncat c.csv > copy\n```\n\n"
        "<!-- by hand: it would fail -->\n```sh\nfalse\n```\n\n"
        "```console\n$ cat log\nfirst\n…o\n$ head -n 1 copy\nsepal…\n```\n",
        tmp_path,
    )
    assert (tmp_path / "log").read_text() == "first\ntwo\n"
    words = (tmp_path / "a" / "b.txt").read_text().split()
    assert words[1] != "7311"
    assert words[1].endswith("1")
    assert words[3] == "127.0.0.1"


def test_progress_and_installations_are_not_typed(tmp_path: Path) -> None:
    """Progress on standard error is no output, and a line is typed without its installations."""
    installs = "python3 -m venv .venv && .venv/bin/pip install -q '.[test]' -c constraints.txt"
    _type(
        "```console\n$ echo 'Comparing: 1,043 of 2,057' >&2; echo one\none\n```\n\n"
        f"```sh\n{installs} && .venv/bin/python -c 'print(1)' > out\n```\n",
        tmp_path,
    )
    assert (tmp_path / "out").read_text() == "1\n"
