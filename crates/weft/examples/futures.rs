//! Completions as futures, by an executor of ten lines; any other one does as well.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use weft_rdma::{Access, Device, DeviceKind, LocalHost, QueuePairOptions, Result};

/// Where both queue pairs are.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

async fn echo() -> Result<()> {
    let device = Device::open(&LocalHost::from_environment(), DeviceKind::Roce)?;
    let domain = device.protection_domain();
    let (sent, received) = (device.completion_queue(8)?, device.completion_queue(8)?);
    let near = domain.queue_pair(QueuePairOptions::reliable(&sent))?;
    let far = domain.queue_pair(QueuePairOptions::reliable(&received))?;
    near.connect_to(HERE, far.address(HERE))?;
    far.connect_to(HERE, near.address(HERE))?;

    let memory = domain.register(128, Access::empty())?;
    memory.write_at(0, b"echo")?;
    far.recv(1, &memory.slice(64..128)?)?;
    near.send(2, &memory.slice(0..4)?)?;
    let message = received.next().await?.ok()?;
    assert_eq!(memory.read(64..64 + message.len as usize)?, b"echo");
    assert_eq!(sent.next().await?.ok()?.id, 2);
    Ok(())
}

fn main() -> Result<()> {
    block_on(echo())
}
