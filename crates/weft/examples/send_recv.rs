//! One message over loopback, connected by rdma-cm.

use std::time::Duration;

use weft_rdma::{
    Access, Connection, Device, DeviceKind, Listener, LocalHost, QueuePairOptions, Result,
};

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let device = Device::open(&LocalHost::from_environment(), DeviceKind::Iwarp)?;
    let listener = Listener::bind(&device, ([127, 0, 0, 1], 0).into())?;
    let to = listener.local_addr();
    let client = std::thread::spawn(move || send(to));

    let domain = device.protection_domain();
    let cq = device.completion_queue(16)?;
    let qp = domain.queue_pair(QueuePairOptions::reliable(&cq))?;
    let inbox = domain.register(64, Access::empty())?;
    qp.recv(1, &inbox.whole()?)?;
    let connection = listener.accept()?.accept(&qp, b"")?;
    let received = cq.wait(LIMIT)?.ok()?;
    assert_eq!(inbox.read(0..received.len as usize)?, b"hello");
    println!("{} bytes of {}", received.len, connection.peer_addr());
    drop(connection);
    client.join().expect("the client did not panic")
}

fn send(to: std::net::SocketAddr) -> Result<()> {
    let device = Device::open(&LocalHost::from_environment(), DeviceKind::Iwarp)?;
    let domain = device.protection_domain();
    let cq = device.completion_queue(16)?;
    let qp = domain.queue_pair(QueuePairOptions::reliable(&cq))?;
    let outbox = domain.register(64, Access::empty())?;
    outbox.write_at(0, b"hello")?;
    let connection = Connection::open(&qp, to, b"", LIMIT)?;
    qp.send(1, &outbox.slice(0..5)?)?;
    let sent = cq.wait(LIMIT)?.ok()?;
    assert_eq!(sent.id, 1);
    // The peer ends the connection once it has the message.
    assert!(connection.wait_end(LIMIT)?);
    Ok(())
}
