"""The fixture `weft_device`: an RDMA device for programs that a test starts.

A test's own process has no device, unless pytest itself is run by `weft run pytest`: a library is
put before a program when it starts.
"""

import os
import subprocess

import pytest

import weft_rdma


class WeftDevice:
    """A device by name, and how to start programs that have it."""

    def __init__(self, name):
        self.name = name
        self._started = []

    def run(self, program, **options):
        """As `weft_rdma.run`, with this device alone."""
        options["env"] = self._environment(options.get("env"))
        return weft_rdma.run(program, **options)

    def start(self, program, **options):
        """`subprocess.Popen` of `program` with this device; it ends with the test."""
        options["env"] = self._environment(options.get("env"))
        process = subprocess.Popen(weft_rdma.command(program), **options)
        self._started.append(process)
        return process

    def _environment(self, given):
        environment = dict(os.environ if given is None else given)
        environment["WEFT_DEVICES"] = self.name
        return environment

    def _end(self):
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture(params=["weft0"])
def weft_device(request):
    """The device weft0, or one that `@pytest.mark.parametrize(..., indirect=True)` names."""
    try:
        weft_rdma.path()
    except FileNotFoundError as error:
        pytest.fail(str(error))
    device = WeftDevice(request.param)
    yield device
    device._end()
