//! A Write into memory of a peer that polls it, connected by addresses that the application
//! carries. Here both queue pairs are of one process.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use weft_rdma::{
    Access, Address, Device, DeviceKind, LocalHost, QueuePairOptions, Region, RemoteKey, Result,
};

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Where both are.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Where the flag is, in the outbox and in the inbox.
const FLAG: usize = 4088;

fn main() -> Result<()> {
    let device = Device::open(&LocalHost::from_environment(), DeviceKind::Roce)?;
    let domain = device.protection_domain();
    let cq = device.completion_queue(16)?;
    let near = domain.queue_pair(QueuePairOptions::reliable(&cq))?;
    let far = domain.queue_pair(QueuePairOptions::reliable(&cq))?;
    // What two processes would send each other by any means.
    let (to_near, to_far) = (near.address(HERE).to_bytes(), far.address(HERE).to_bytes());
    near.connect_to(HERE, Address::from_bytes(&to_far).expect("all bytes are there"))?;
    far.connect_to(HERE, Address::from_bytes(&to_near).expect("all bytes are there"))?;

    let inbox = domain.register(4096, Access::REMOTE_WRITE)?;
    let key = inbox.remote_key().to_bytes();

    let outbox = domain.register(4096, Access::empty())?;
    outbox.write_at(0, b"nobody was asked")?;
    outbox.store(FLAG, 1)?;
    let key = RemoteKey::from_bytes(&key).expect("all bytes are there");
    near.write(1, &outbox.slice(0..FLAG)?, key)?;
    // A Write of one word appears as a whole, and after what was written before it.
    let flag_key = key.slice(FLAG as u64..key.len)?;
    near.write(2, &outbox.slice(FLAG..4096)?, flag_key)?;

    await_flag(&inbox)?;
    assert_eq!(inbox.read(0..16)?, b"nobody was asked");
    for id in [1, 2] {
        assert_eq!(cq.wait(LIMIT)?.ok()?.id, id);
    }
    Ok(())
}

fn await_flag(inbox: &Region) -> Result<()> {
    while inbox.load(FLAG)? == 0 {
        std::thread::yield_now();
    }
    Ok(())
}
