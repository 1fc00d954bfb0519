"""Mooncake's transfer engine: memory of a child process written and read, the data checked."""

import os
import sys

DEVICE = sys.argv[1]
SIZE = 4 << 20


def engine():
    from mooncake.engine import TransferEngine

    made = TransferEngine()
    assert made.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", DEVICE) == 0
    buffer = made.allocate_managed_buffer(SIZE)
    assert buffer != 0
    return made, buffer


def serve(told):
    served, buffer = engine()
    os.write(told, f"127.0.0.1:{served.get_rpc_port()} {buffer}\n".encode())
    while True:
        os.read(waits, 1)


reader, writer = os.pipe()
waits, _open = os.pipe()
child = os.fork()
if child == 0:
    try:
        serve(writer)
    finally:
        os._exit(1)
os.close(writer)

try:
    name, remote = os.read(reader, 100).split()
    name, remote = name.decode(), int(remote)
    ours, buffer = engine()
    written = os.urandom(SIZE // 2)
    assert ours.write_bytes_to_buffer(buffer, written, len(written)) == 0
    assert ours.transfer_sync_write(name, buffer, remote, len(written)) == 0
    back = buffer + SIZE // 2
    assert ours.transfer_sync_read(name, back, remote, len(written)) == 0
    assert ours.read_bytes_from_buffer(back, len(written)) == written
finally:
    os.kill(child, 9)
print("all right", flush=True)
os._exit(0)
