"""Private classification among parties that do not trust each other.

::

    import veilring as vr

    wine = vr.load("wine")
    train, test = wine.split(test_share=0.25, seed=1)
    run = vr.run(vr.RankSearch(k=5), train.partition(8, seed=1), test, runtime="simulated", seed=1)
    print(run)

Every name in this package is imported on first use. The table of names is `__init__.pyi`.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_TABLE: Final = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULE_OF: Final = {
    name: module for module, name in re.findall(r"^from (\S+) import (\w+)", _TABLE, re.MULTILINE)
}

__all__ = ("__version__", *sorted(_MODULE_OF))  # noqa: PLE0604  (from the table, the only one)


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's attribute is anything)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (it takes long)

        return version("veilring")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'veilring' has no attribute {name!r}")
    from veilring.extras import name_missing_extras  # noqa: PLC0415  (importing loads nothing)

    with name_missing_extras():
        found = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
