"""The reference lists few names, and those of `import veilring` among them."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import veilring as vr

REFERENCE: Final = Path(__file__).parents[2] / "docs" / "api"
NAMES_MAX: Final = 200
# A directive with the options below it.
DIRECTIVE: Final = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?:   .*\n)*)", re.MULTILINE)
MEMBERS: Final = re.compile(r"^   :members:(.*)$", re.MULTILINE)


def listed() -> Iterator[object]:
    """Yield the objects that the pages list, without their members."""
    for page in REFERENCE.glob("*.md"):
        for kind, name, options in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            if kind != "module":
                home, _, last = name.rpartition(".")
                yield getattr(import_module(home), last)
                continue
            module, members = import_module(name), MEMBERS.search(options)
            assert members is not None, name
            given = members[1].replace(",", " ").split()
            own = [each for each in vars(module) if not each.startswith("_")]
            for each in given or getattr(module, "__all__", own):
                found = getattr(module, each)
                if given or getattr(found, "__module__", "").startswith(name):
                    yield found


def test_the_reference_lists_at_most_200_names() -> None:
    """Everything that it does not list is private."""
    names = {id(each) for each in listed()}
    assert 100 < len(names) <= NAMES_MAX


def test_the_reference_lists_all_names_of_the_package() -> None:
    """Each name of `import veilring` is described on some page."""
    names = {id(each) for each in listed()}
    table = (REFERENCE / "veilring.md").read_text(encoding="utf-8")
    for name in set(vr.__all__) - {"__version__"}:
        assert id(getattr(vr, name)) in names, name
        assert f"`{name}`" in table
