"""Progress of jobs elsewhere: datagrams of JSON, of which any may be lost, late, doubled or not ours."""

import json
import socket
import time
from contextlib import closing

import numpy as np
import pytest

from pymc_hais.jobs.listener import Listener, Stopped
from pymc_hais.jobs.worker import Address, _sending


@pytest.fixture
def heard():
    return []


@pytest.fixture
def listener(heard):
    with closing(Listener(4, lambda *told: heard.append(told))) as one:
        yield one


def send(listener, *messages):
    address = listener.address(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        for message in messages:
            content = message if isinstance(message, bytes) else json.dumps(message).encode()
            channel.sendto(content, (address.host, address.port))
    time.sleep(0.05)
    listener.hear()


def test_what_workers_tell_is_gathered(listener, heard):
    token = listener.address(0).token
    send(listener, [token, 0, 0.5, 0.25, -3.0], [token, 2, 0.25, 0.125, -5.0])
    fraction, beta, log_z = heard[-1]
    assert (fraction, beta) == (0.1875, 0.125)
    np.testing.assert_array_equal(log_z, [-3.0, -5.0])
    listener.finish(0)
    send(listener, [token, 0, 0.1, 0.0, -3.0])  # late, and of no matter any more
    assert heard[-1][:2] == (0.3125, 0.125)
    for number in range(4):
        listener.finish(number)
    listener.hear()
    assert heard[-1][:2] == (1.0, 1.0)


def test_a_worker_sends_now_and_then_what_the_listener_hears(listener, heard):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        report = _sending(channel, listener.address(1))
        for i in range(1000):
            report(i / 1000, 0.5, np.array([-2.0, -1.0]))
        time.sleep(0.05)
        listener.hear()
        assert heard[-1][0] < 0.1  # of a thousand reports in a moment one was sent
        unreachable = _sending(channel, Address("no such host.invalid", 9, "", 0))
        unreachable(0.5, 0.5, 0.0)


def test_what_is_not_from_a_worker_is_ignored(listener, heard):
    token = listener.address(0).token
    send(
        listener,
        b"",
        b"\x80\x04\x95pickle",
        b"[" * 500,
        b"\xff\xfe",
        json.dumps([token, 0, 0.5, 0.5, -1.0, "x" * 2000]).encode(),
        ["foreign", 0, 0.5, 0.5, -1.0],
        [token, 0, 0.5],
        [token, 99, 0.5, 0.5, -1.0],
        [token, -1, 0.5, 0.5, -1.0],
        [token, "a", 0.5, 0.5, -1.0],
        [token, 0, None, 0.5, -1.0],
        [token, 0, float("nan"), 0.5, -1.0],
        [token, float("inf"), 0.5, 0.5, -1.0],
        [token, 0, 0.5, float("nan"), float("-inf")] * 2,
        {"token": token},
        3,
        None,
    )
    assert heard[-1][0] == 0.0
    assert np.isnan(heard[-1][2])


def test_more_messages_than_are_read_at_a_time_do_not_hold_the_run_up(listener, heard):
    send(listener, *(["foreign", 0, 0.5, 0.5, -1.0] for _ in range(3000)))
    assert len(heard) == 1


def test_threads_report_without_a_channel_and_stop_when_nobody_listens(listener, heard):
    report = listener.hears(3)
    report(2.0, 0.5, -1.0)  # as rounding may have it
    listener.hear()
    assert 0.24 < heard[-1][0] < 0.25
    listener.close()
    with pytest.raises(Stopped):
        report(0.5, 0.5, -1.0)
