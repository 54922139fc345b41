"""A task is its bytes: equal tasks have one hash, and any difference gives another."""

import json

from tests.protocols.ldp.collecting import make_task

from veilring.protocols.ldp.messages import Task


def test_equal_tasks_have_one_hash_and_others_differ() -> None:
    """Terms, exact numbers and closing time all count; the order of keys does not."""
    task = make_task()
    again = Task(dict(reversed(list(task.terms.items()))), task.survey)
    assert make_task().digest == task.digest == again.digest
    others = [
        make_task(epsilon=1.0 + 1e-9),
        make_task(closes=1.0),
        Task({"columns": ["a", "c"]}, task.survey),
    ]
    assert len({task.digest, *(other.digest for other in others)}) == 4


def test_a_task_publishes_the_exact_numbers_of_every_question() -> None:
    """The terms that a client compares contain the integers behind all probabilities."""
    content = json.loads(make_task().encoded)
    numbers = content["numbers"]["questions"]
    assert [question["domain"] for question in numbers] == [3, 15, 15]
    assert all(isinstance(each, int | str) for q in numbers for each in q.values())
    assert numbers[1]["p"] == 1 << 31  # one half in 32 bits


def test_a_task_closes_at_its_time_and_not_before() -> None:
    """The closing time itself is too late; without one a collection stays open."""
    task = make_task(closes=100.0)
    assert not task.is_closed(99.999)
    assert task.is_closed(100.0)
    assert not make_task().is_closed(1e12)
