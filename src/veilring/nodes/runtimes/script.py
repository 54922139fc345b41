"""The launcher's script, and objects of it that are sent to another process.

Python's `multiprocessing` runs the caller's script again in each process that it starts, so that
functions and classes of the script can be found there; a script without a main guard would then
start itself again and again. Here a process is started without the script. Objects sent to it are
pickled by `pickle_item`; if one names something of the script, `unpickle_item` imports the script
there, and stops at its first cluster, by which time everything above that is defined.
"""

import io
import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, Self

from typing_extensions import override

from veilring.errors import ClusterError

_MAIN: Final = "__main__"
_COPY: Final = "__mp_main__"  # the name that `multiprocessing` also uses for the launcher's script
# `multiprocessing` assumes that a program whose spec has such a name needs no import.
_NEVER_IMPORTED: Final = ModuleSpec("veilring.__main__", None)
_lock: Final = threading.Lock()
_importing: Final = threading.local()


@contextmanager
def left_alone() -> Iterator[None]:
    """Start processes here that do not import the script; other threads that do the same wait."""
    with _lock:
        main = sys.modules[_MAIN]
        spec = getattr(main, "__spec__", None)
        main.__spec__ = _NEVER_IMPORTED
        try:
            yield
        finally:
            main.__spec__ = spec


@dataclass(frozen=True, slots=True)
class Script:
    """The place from which the launcher's script can be imported.

    Attributes:
        path: The file of the script; empty for code typed at a prompt or into a notebook.
        package: The package of its relative imports, if it was started by `-m`.
    """

    path: str
    package: str | None

    @classmethod
    def running(cls) -> Self:
        """Return the script of this process."""
        main = sys.modules[_MAIN]
        path = Path(getattr(main, "__file__", None) or "")
        package = getattr(main, "__package__", None) or None
        return cls(str(path.resolve()) if path.is_file() else "", package)

    def load(self) -> None:
        """Make it the main module of this process, up to its first cluster."""
        module = ModuleType(_COPY)
        module.__file__, module.__package__ = self.path, self.package
        sys.modules[_MAIN] = sys.modules[_COPY] = module
        failed = list[BaseException]()

        def execute() -> None:
            _importing.now = True
            try:
                code = SourceFileLoader(_COPY, self.path).get_code(_COPY)
                exec(code, module.__dict__)  # type: ignore[arg-type]  # noqa: S102  (source has code)
            except (_Reached, SystemExit):
                pass
            except BaseException as error:  # noqa: BLE001  (a script may raise anything)
                failed.append(error)

        # a loop runs in this thread, and a script may start one of its own
        thread = threading.Thread(target=execute, name="veilring-script")
        thread.start()
        thread.join()
        if failed:
            raise ImportError(f"{self.path} raised {type(failed[0]).__name__}: {failed[0]}")


class _Reached(BaseException):
    """Ends the import of a script at its first cluster."""


def stop_if_imported() -> None:
    """End the import of the script that runs in this thread, if one is imported for a party."""
    if getattr(_importing, "now", False):
        raise _Reached


class _Pickler(pickle.Pickler):
    """Records whether an object of the script is named."""

    of_script: str = ""

    @override
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType) and obj.__module__ == _MAIN:
            self.of_script = obj.__qualname__
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Imports the script when an object of it is named for the first time."""

    def __init__(self, file: io.BytesIO, script: Script) -> None:
        super().__init__(file)
        self._script = script

    @override
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == _MAIN and sys.modules[_MAIN].__name__ != _COPY:
            self._script.load()
        return super().find_class(module_name, global_name)


def pickle_item(item: object, problem: str) -> bytes:
    """Pickle an object that may name functions and classes of the script."""
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        pickler.dump(item)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        local = "; move it to the top level of a module" if "<locals>" in str(error) else ""
        raise ClusterError(f"{problem}: {error}{local}") from error
    if pickler.of_script and not Script.running().path:
        raise ClusterError(
            f"{problem}: {pickler.of_script} was defined at a prompt or in a notebook, where other"
            " processes cannot find it; put it into a module and import it from there, or use the"
            " runtime tls, which runs all parties in this process"
        )
    return file.getvalue()


def unpickle_item(packed: bytes, script: Script) -> Any:  # noqa: ANN401  (any object may be packed)
    """Return the object packed by the process of the given script."""
    return _Unpickler(io.BytesIO(packed), script).load()
