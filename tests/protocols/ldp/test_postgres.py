"""The URL of a PostgreSQL database may contain a password, which is never shown."""

import traceback

import pytest
from tests.protocols.ldp.collecting import make_task

from veilring.errors import InputError, StoreFailed, VeilringError
from veilring.protocols.ldp.store import open_report_store

pytest.importorskip("psycopg", reason="psycopg is part of the extra `postgres`")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://census:hid%den@127.0.0.1:1/survey", InputError),
        ("postgresql://census:hid%zzden@127.0.0.1:1/survey", InputError),
        ("postgresql://census:hid den@127.0.0.1:1/survey", InputError),
        ("postgresql://census:x@hidden@127.0.0.1:1/survey", InputError),
        ("postgresql://census:1/hidden@127.0.0.1:1/survey", InputError),
        ("postgresql://census:hidden@127.0.0.1:one/survey", StoreFailed),
        ("postgresql://census:hidden@127.0.0.1:1/survey", StoreFailed),
        ("postgres://census:hidden@127.0.0.1:1/survey", StoreFailed),
        ("postgresql://census:%40hidden@127.0.0.1:1/survey", StoreFailed),
    ],
)
def test_a_password_is_never_shown(url: str, kind: type[VeilringError]) -> None:
    """Neither an unreadable URL nor an unreachable server shows a part of it in the error."""
    with pytest.raises(kind) as caught:
        open_report_store(url, make_task())
    shown = "".join(traceback.format_exception(caught.value, limit=0)) + repr(caught.value)
    for part in ("hid", "den"):
        assert part not in shown
