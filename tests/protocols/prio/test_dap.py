"""The messages of DAP-09, byte by byte."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import FrameError
from veilring.protocols.prio.dap import (
    HELPER,
    LEADER,
    Ciphertext,
    Extension,
    HpkeConfig,
    Metadata,
    PlaintextShare,
    Report,
    decode_configs,
    encode_configs,
    share_aad,
    share_info,
)

BYTE, SHORT = st.integers(0, 255), st.integers(0, (1 << 16) - 1)
SOME = st.binary(min_size=1, max_size=40)
CONFIGS = st.lists(
    st.builds(HpkeConfig, BYTE, SHORT, SHORT, SHORT, SOME),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each.config_id,
).map(tuple)
CIPHERTEXTS = st.builds(Ciphertext, BYTE, SOME, SOME)
METADATA = st.builds(Metadata, st.binary(min_size=16, max_size=16), st.integers(0, (1 << 64) - 1))
REPORTS = st.builds(Report, METADATA, st.binary(max_size=40), CIPHERTEXTS, CIPHERTEXTS)
PLAINTEXTS = st.builds(
    PlaintextShare,
    st.binary(max_size=40),
    st.lists(st.builds(Extension, SHORT, st.binary(max_size=9)), max_size=3).map(tuple),
)
MESSAGES: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "configs": (CONFIGS, encode_configs, decode_configs),
    "ciphertext": (CIPHERTEXTS, Ciphertext.encode, Ciphertext.decode),
    "report": (REPORTS, Report.encode, Report.decode),
    "plaintext": (PLAINTEXTS, PlaintextShare.encode, PlaintextShare.decode),
}


@pytest.mark.parametrize("kind", MESSAGES)
@given(st.data())
def test_a_message_is_read_back(kind: str, data: st.DataObject) -> None:
    """Decoding gives the message that was encoded."""
    values, encode, decode = MESSAGES[kind]
    value = data.draw(values)
    assert decode(encode(value)) == value


@pytest.mark.parametrize("kind", MESSAGES)
@given(st.data())
def test_a_message_has_one_length(kind: str, data: st.DataObject) -> None:
    """A message that is cut anywhere, or has bytes behind it, is refused."""
    values, encode, decode = MESSAGES[kind]
    encoded = encode(data.draw(values))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for wrong in (encoded[:cut], encoded + b"\0", encoded + encoded):
        with pytest.raises(FrameError):
            decode(wrong)


@pytest.mark.parametrize("kind", MESSAGES)
@given(st.data())
def test_a_message_has_one_encoding(kind: str, data: st.DataObject) -> None:
    """Bytes with one change are refused, or are the encoding of another message."""
    values, encode, decode = MESSAGES[kind]
    changed = bytearray(encode(data.draw(values)))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        read = decode(bytes(changed))
    except FrameError:
        return
    assert encode(read) == changed


@pytest.mark.parametrize("kind", MESSAGES)
@given(noise=st.binary(max_size=200))
def test_noise_is_refused_or_read(kind: str, noise: bytes) -> None:
    """Any bytes raise `FrameError` or are a message's encoding: there is no third outcome."""
    _, encode, decode = MESSAGES[kind]
    try:
        read = decode(noise)
    except FrameError:
        return
    assert encode(read) == noise


def test_the_bytes_of_a_report() -> None:
    """A report is encoded as the draft shows it, with the bounds of its parts in front of them."""
    leader, helper = Ciphertext(7, b"EE", b"LL"), Ciphertext(8, b"F", b"H")
    report = Report(Metadata(b"0123456789abcdef", 0x0102), b"PUB", leader, helper)
    assert report.encode() == (
        b"0123456789abcdef"
        b"\0\0\0\0\0\0\x01\x02"
        b"\0\0\0\x03PUB"
        b"\x07\0\x02EE\0\0\0\x02LL"
        b"\x08\0\x01F\0\0\0\x01H"
    )
    assert share_aad(b"t" * 32, report.metadata, b"PUB") == b"t" * 32 + report.encode()[:31]


def test_the_bytes_of_the_smaller_messages() -> None:
    """Configurations, plaintexts and the application information have the draft's bytes."""
    config = HpkeConfig(1, 0x20, 1, 3, b"KEY")
    assert encode_configs([config]) == b"\0\x0c\x01\0\x20\0\x01\0\x03\0\x03KEY"
    share = PlaintextShare(b"PAY", (Extension(5, b"D"),))
    assert share.encode() == b"\0\x05\0\x05\0\x01D\0\0\0\x03PAY"
    assert share_info(LEADER) == b"dap-09 input share\x01\x02"
    assert share_info(HELPER) == b"dap-09 input share\x01\x03"


@pytest.mark.parametrize(
    "wrong",
    [
        b"\0\0",  # no configuration
        b"\0\x09\x01\0\x20\0\x01\0\x03\0\0",  # an empty key
        b"\0\x14" + 2 * b"\x01\0\x20\0\x01\0\x03\0\x01K",  # two with one id
    ],
)
def test_impossible_configurations_are_refused(wrong: bytes) -> None:
    """A list has at least one configuration, each with a key and an id of its own."""
    with pytest.raises(FrameError):
        decode_configs(wrong)


@pytest.mark.parametrize("wrong", [b"\x01\0\0\0\0\0\x01P", b"\x01\0\x01E\0\0\0\0"])
def test_a_ciphertext_has_both_parts(wrong: bytes) -> None:
    """An encapsulated key and a ciphertext have at least one byte each."""
    with pytest.raises(FrameError):
        Ciphertext.decode(wrong)


@pytest.mark.parametrize(
    "value",
    [
        Ciphertext(256, b"E", b"P"),
        Ciphertext(-1, b"E", b"P"),
        Ciphertext(1, b"E" * (1 << 16), b"P"),
        Metadata(b"short", 1),
        Metadata(b"0123456789abcdef", 1 << 64),
        HpkeConfig(1, 1 << 16, 1, 1, b"K"),
    ],
)
def test_a_value_out_of_bounds_is_not_encoded(value: Any) -> None:
    """A value that does not fit its field is refused rather than cut."""
    with pytest.raises(FrameError):
        value.encode()
