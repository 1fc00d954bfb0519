//! Has a server write an answer into memory of this process: `cm_client ADDRESS:PORT`.

use std::net::SocketAddr;
use std::time::Duration;

use weft_rdma::{Access, Connection, Device, DeviceKind, LocalHost, QueuePairOptions, Result};

/// How long the server may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The answer of the server at `to`.
pub fn ask(device: &Device, to: SocketAddr) -> Result<Vec<u8>> {
    let domain = device.protection_domain();
    let cq = device.completion_queue(4)?;
    let qp = domain.queue_pair(QueuePairOptions::reliable(&cq))?;
    let inbox = domain.register(64, Access::REMOTE_WRITE)?;
    // Taken by the immediate data of the Write, so it needs no memory.
    qp.recv(1, &[])?;
    let key = inbox.remote_key().to_bytes();
    let connection = Connection::open(&qp, to, &key, LIMIT)?;
    assert!(connection.private_data().starts_with(b"at once"));
    let len = cq.wait(LIMIT)?.ok()?.imm.unwrap_or_default();
    inbox.read(0..len as usize)
}

fn main() -> Result<()> {
    let to = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let device = Device::open(&LocalHost::from_environment(), DeviceKind::Roce)?;
    let answer = ask(&device, to.expect("an address and a port"))?;
    println!("{}", String::from_utf8_lossy(&answer));
    Ok(())
}
