//! Writes an answer into the memory of each client that connects: `cm_server ADDRESS:PORT`.

use std::time::Duration;

use weft_rdma::{
    Access, Device, DeviceKind, Listener, LocalHost, QueuePairOptions, RemoteKey, Result, Work,
};

/// How long a client may take.
const LIMIT: Duration = Duration::from_secs(10);
const ANSWER: &[u8] = b"42";

/// Serves one client.
pub fn serve(device: &Device, listener: &Listener) -> Result<()> {
    let incoming = listener.accept()?;
    // A client says along where the answer goes. What it leaves out may be zero here.
    let to = RemoteKey::from_bytes(incoming.private_data());
    let Some(to) = to.filter(|to| to.len >= ANSWER.len() as u64) else {
        return incoming.reject(b"no key");
    };
    let domain = device.protection_domain();
    let cq = device.completion_queue(4)?;
    let qp = domain.queue_pair(QueuePairOptions::reliable(&cq))?;
    let connection = incoming.accept(&qp, b"at once")?;
    let answer = domain.register(ANSWER.len(), Access::empty())?;
    answer.write_at(0, ANSWER)?;
    // The immediate data completes a receive of the client, which says that all is there.
    qp.post(1, Work::write(&answer.whole()?, to).with_imm(ANSWER.len() as u32))?;
    cq.wait(LIMIT)?.ok()?;
    println!("served {}", connection.peer_addr());
    connection.wait_end(LIMIT)?;
    Ok(())
}

fn main() -> Result<()> {
    let addr = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let device = Device::open(&LocalHost::from_environment(), DeviceKind::Roce)?;
    let listener = Listener::bind(&device, addr.expect("an address and a port"))?;
    loop {
        if let Err(error) = serve(&device, &listener) {
            eprintln!("{error}");
        }
    }
}
