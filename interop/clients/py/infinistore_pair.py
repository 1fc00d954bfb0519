"""InfiniStore: a store in a child process, blocks written into it and read back by RDMA."""

import asyncio
import os
import socket
import sys
import time

DEVICE, PORT = sys.argv[1], int(sys.argv[2])
BLOCK, COUNT = 64 << 10, 64


def serve():
    # Not `python -m infinistore.server`, which insists on a rank with the OOM killer that only
    # the machine's root may give it.
    import infinistore
    import uvloop

    config = infinistore.ServerConfig(
        service_port=PORT, manage_port=PORT, dev_name=DEVICE, link_type="Ethernet", prealloc_size=1
    )
    loop = uvloop.new_event_loop()
    infinistore.register_server(loop, config)
    loop.run_forever()


def await_listener():
    while True:
        try:
            return socket.create_connection(("127.0.0.1", PORT)).close()
        except ConnectionRefusedError:
            if os.waitpid(child, os.WNOHANG)[0]:
                sys.exit("the store has ended")
            time.sleep(0.05)


child = os.fork()
if child == 0:
    try:
        serve()
    finally:
        os._exit(1)

import infinistore
import numpy as np

try:
    await_listener()
    config = infinistore.ClientConfig(
        host_addr="127.0.0.1",
        service_port=PORT,
        dev_name=DEVICE,
        connection_type=infinistore.TYPE_RDMA,
        link_type="Ethernet",
    )
    connection = infinistore.InfinityConnection(config)
    connection.connect()
    written = np.random.default_rng(1).integers(0, 256, BLOCK * COUNT, dtype=np.uint8)
    read = np.zeros_like(written)
    for array in (written, read):
        assert connection.register_mr(array.ctypes.data, array.nbytes) == 0
    blocks = [(f"key-{i}", i * BLOCK) for i in range(COUNT)]

    async def exchange():
        await connection.rdma_write_cache_async(blocks, BLOCK, written.ctypes.data)
        await connection.rdma_read_cache_async(blocks, BLOCK, read.ctypes.data)

    asyncio.run(exchange())
    assert (written == read).all()
    connection.close()
finally:
    os.kill(child, 9)
print("all right")
