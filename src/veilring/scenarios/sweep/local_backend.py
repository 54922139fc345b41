"""joblib on processes of this machine, made to stop without a trace of its own."""

import time
from typing import Final

from joblib.parallel import LokyBackend
from typing_extensions import override

# The manager's thread hands a call on in less than a millisecond. If it does not, it has died, and
# there is nothing to wait for.
HAND_ON_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.001


class LocalBackend(LokyBackend):  # type: ignore[misc]  # joblib is not typed
    """joblib's own backend, loky, which may trip over a call that it was given as it is stopped.

    loky's manager forgets all calls when it has to kill its workers, and then fails on one that it
    had not yet handed on: its thread ends with a `KeyError`, shown to whoever pressed Ctrl-C.
    """

    @override
    def abort_everything(self, ensure_ready: bool = True) -> None:
        with self.parallel._lock:  # noqa: SLF001  (a call that is just being given is given)
            pass
        # joblib gives no more calls from here on, and so none is left when none is waiting.
        waiting = self._workers._work_ids  # noqa: SLF001  (loky has no public word for it)
        deadline = time.monotonic() + HAND_ON_SECONDS
        while not waiting.empty() and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        super().abort_everything(ensure_ready=ensure_ready)
