"""The keys of an aggregator, and the shares that are sealed to them."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from tests.protocols.prio.reports import NOW, VDAFS, Aggregators, make_task

from veilring.errors import InputError
from veilring.protocols.prio.dap import LEADER, RECIPIENTS, Report, decode_configs
from veilring.protocols.prio.sealing import (
    RETIRED_SECONDS,
    Keyring,
    Problem,
    ReceivingKey,
    ReportRefused,
    add_key,
    load_keys,
    make_key,
)
from veilring.protocols.prio.uploads import unseal_with


def ids_of(keys: Keyring) -> list[int]:
    """Return the ids of the advertised keys."""
    return [each.config_id for each in decode_configs(keys.advertised)]


def test_a_keyring_advertises_the_keys_in_use() -> None:
    """Retired keys are not advertised, and the order is that of preference."""
    keys = [make_key(5, b"a" * 32), make_key(4, b"b" * 32, is_retired=True), make_key(3, b"c" * 32)]
    assert ids_of(Keyring(keys)) == [5, 3]


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [make_key(1, b"a" * 32, is_retired=True)],
        [make_key(1, b"a" * 32), make_key(1, b"b" * 32)],
    ],
)
def test_an_impossible_keyring_is_refused(keys: list[ReceivingKey]) -> None:
    """An aggregator has a key in use, and no two keys with one id."""
    with pytest.raises(InputError, match="at least one key"):
        Keyring(keys)


def test_a_key_is_kept_in_a_private_file(tmp_path: Path) -> None:
    """A new key is read back from a file that only its owner can read."""
    path = tmp_path / "keys.toml"
    made = add_key(path, NOW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_keys(path).advertised == made.advertised
    path.chmod(0o640)
    with pytest.raises(InputError, match="lets other users access it"):
        load_keys(path)


def test_a_replaced_key_opens_reports_for_two_days(tmp_path: Path) -> None:
    """A new key retires the earlier ones, and deletes those that were retired for long enough."""
    path = tmp_path / "keys.toml"
    parties = Aggregators(make_task())
    first = add_key(path, NOW)
    parties.leader.renew(first)
    report = parties.report(1).encode()
    second = add_key(path, NOW + 1, "ChaCha20-Poly1305")
    assert ids_of(second) != ids_of(first)
    assert len(ids_of(second)) == 1
    parties.leader.renew(load_keys(path))
    assert parties.door.open(report, NOW).share
    add_key(path, NOW + RETIRED_SECONDS)
    parties.leader.renew(load_keys(path))
    assert parties.door.open(report, NOW).share
    parties.leader.renew(add_key(path, NOW + 1 + RETIRED_SECONDS))
    with pytest.raises(ReportRefused) as caught:
        parties.door.open(report, NOW)
    assert caught.value.problem == Problem.OUTDATED_CONFIG


@pytest.mark.parametrize(
    "text",
    [
        "",
        "keys = []",
        "[[keys]]\nid = 256\naead = 'AES-128-GCM'\nsecret = '" + "A" * 43 + "='",
        "[[keys]]\nid = 1\naead = 'AES-128-GCM'\nsecret = 'short'",
        "[[keys]]\nid = 1\naead = 'ROT13'\nsecret = '" + "A" * 43 + "='",
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path: Path, text: str) -> None:
    """A file without a usable key is refused."""
    path = tmp_path / "keys.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InputError, match="key"):
        load_keys(path)


@pytest.mark.parametrize("kind", VDAFS)
def test_each_aggregator_opens_its_share_only(kind: str) -> None:
    """Either share is opened by its recipient, with the size of the scheme, and by nobody else."""
    parties = Aggregators(make_task(VDAFS[kind]))
    measurement = {"count": 1, "sum": 3, "sumvec": [1] * 5, "histogram": 3}[kind]
    report = parties.report(measurement)
    public = parties.task.task_id, report.metadata, report.public_share
    rings, sealed = (parties.leader, parties.helper), (report.leader, report.helper)
    for place, size in enumerate(parties.prio.input_share_sizes):
        to, other = RECIPIENTS[place], RECIPIENTS[1 - place]
        assert len(rings[place].open(to, *public, sealed[place])) == size
        with pytest.raises(ReportRefused):
            rings[place].open(other, *public, sealed[place])


def test_a_share_is_bound_to_its_report() -> None:
    """A share opens only for its own task, id, time and public share."""
    parties = Aggregators(make_task(VDAFS["histogram"]))
    report = parties.report(3)
    meta, public = report.metadata, report.public_share
    for task_id, metadata, public_share in (
        (bytes(32), meta, public),
        (parties.task.task_id, replace(meta, report_id=bytes(16)), public),
        (parties.task.task_id, replace(meta, time=meta.time + 1), public),
        (parties.task.task_id, meta, bytes(len(public))),
    ):
        with pytest.raises(ReportRefused, match="cannot be decrypted"):
            parties.leader.open(LEADER, task_id, metadata, public_share, report.leader)


def test_a_helper_leaves_out_what_it_cannot_open() -> None:
    """Of several uploads, those that the helper can open have a share; no error ends the batch."""
    parties = Aggregators(make_task())
    good = parties.report(1)
    reports: list[Report] = [good, replace(good, helper=replace(good.helper, config_id=7)), good]
    opened = [parties.door.open(each.encode(), NOW) for each in reports]
    opened.append(opened[0]._replace(sealed=b"noise"))
    unseal = unseal_with(parties.helper, parties.task, parties.prio)
    assert [share is None for share in unseal(opened)] == [False, True, False, True]
    assert unseal([]) == []
