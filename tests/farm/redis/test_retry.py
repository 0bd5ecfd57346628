"""Tests of the waits for Redis: their time, and callers that are refused at once."""

from __future__ import annotations

import threading
import time

import pytest

from farrier.errors import ServiceError
from farrier_farm.redis.connection import connect
from farrier_farm.redis.retry import Breaker, Patience


def _fails(breaker: Breaker, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), breaker.guard():
        raise error


def test_after_a_wait_in_vain_one_at_a_time_asks_and_the_others_are_refused() -> None:
    breaker = Breaker()
    begun, answered = threading.Event(), threading.Event()

    def ask() -> None:
        with breaker.guard():
            begun.set()
            answered.wait()

    for _ in range(2):  # Several callers at the same time get no answer.
        _fails(breaker, ServiceError("silent"))
    asking = threading.Thread(target=ask)
    asking.start()
    begun.wait()
    for _ in range(3):
        with pytest.raises(ServiceError, match="silent"), breaker.guard():
            pytest.fail("this one was not to ask")
    answered.set()
    asking.join()
    with breaker.guard(), breaker.guard():  # Calls run in parallel again.
        pass


def test_a_breaker_stays_open_while_nobody_gets_an_answer() -> None:
    breaker = Breaker()
    for word in ("first", "second"):
        _fails(breaker, ServiceError(word))
    with breaker.guard(), pytest.raises(ServiceError, match="second"), breaker.guard():
        pass


def test_an_error_that_redis_answers_is_an_answer() -> None:
    breaker = Breaker()
    _fails(breaker, ServiceError("silent"))
    _fails(breaker, ValueError("wrong type"))
    with breaker.guard(), breaker.guard():
        pass


def test_a_silence_is_waited_out_by_those_who_can(installation) -> None:
    url = installation.redis_url
    patient, prompt = (connect(url, Patience(0.1, silences, ())) for silences in (1000, 1))
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(patient.command("PING")))
    with installation.redis_stands_still():
        waiting.start()
        with pytest.raises(ServiceError, match="does not answer"):
            prompt.command("PING")
        time.sleep(0.3)
        assert not answers
    waiting.join(20)
    assert answers == [True]
    assert prompt.command("PING") is True
    patient.close()
    prompt.close()
