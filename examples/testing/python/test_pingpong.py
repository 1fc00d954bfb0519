"""Tests of programs that need an RDMA device, with the fixture of `pip install weft-rdma`."""

import socket
import time

import pytest


@pytest.fixture
def port():
    """A port that is free in TCP."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def test_the_device_is_active(weft_device):
    shown = weft_device.run(
        ["ibv_devinfo", "-d", weft_device.name], check=True, capture_output=True, text=True
    )
    assert "PORT_ACTIVE" in shown.stdout


@pytest.mark.parametrize("weft_device", ["weft0", "weft_iw0"], indirect=True)
def test_bytes_arrive(weft_device, port):
    at = ["-a", "127.0.0.1", "-p", port]
    server = weft_device.start(["rping", "-s", *at, "-C", "3", "-V"])
    client = ["rping", "-c", *at, "-C", "3", "-V"]
    for _ in range(50):
        if weft_device.run(client, require_traffic=True).returncode == 0:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the server did not answer")
    assert server.wait(timeout=10) == 0
