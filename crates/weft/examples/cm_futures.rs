//! Two hosts of one key, connected by futures of rdma-cm, and an executor of ten lines for each.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use weft_rdma::{
    Access, Completion, CompletionQueue, Connection, Device, DeviceKind, HostOptions, Listener,
    LocalHost, QueuePair, QueuePairOptions, Result, Work,
};

/// How long each step of connecting may take.
const LIMIT: Duration = Duration::from_secs(10);

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// A device of a host of its own, as another machine would have it.
fn device() -> Result<Device> {
    let host = LocalHost::new(HostOptions::default().key([7; 32]).threads(1)?);
    Device::open(&host, DeviceKind::Roce)
}

fn queue_pair(device: &Device) -> Result<QueuePair> {
    let cq = device.completion_queue(8)?;
    device.protection_domain().queue_pair(QueuePairOptions::reliable(&cq))
}

async fn serve(device: &Device, listener: &Listener) -> Result<()> {
    let incoming = listener.accept_async().await?;
    let connection = incoming.accept_async(&queue_pair(device)?, b"").await?;
    connection.queue_pair().post(1, Work::send_inline(b"hello"))?;
    connection.ended().await
}

/// The next completion. Once the peer is gone this end disconnects too: that completes receives
/// for which nothing comes any more.
async fn next_of(connection: &Connection, cq: &CompletionQueue) -> Result<Completion> {
    let (mut next, mut ended) = (pin!(cq.next()), pin!(connection.ended()));
    let mut is_over = false;
    poll_fn(|context| {
        let found = next.as_mut().poll(context);
        if found.is_ready() || is_over || ended.as_mut().poll(context)?.is_pending() {
            return found;
        }
        is_over = true;
        connection.disconnect()?;
        next.as_mut().poll(context)
    })
    .await
}

/// What the server at `to` says; an error if it leaves without a word.
pub async fn ask(device: &Device, to: SocketAddr) -> Result<Vec<u8>> {
    let (cq, domain) = (device.completion_queue(8)?, device.protection_domain());
    let qp = domain.queue_pair(QueuePairOptions::reliable(&cq))?;
    let inbox = domain.register(64, Access::empty())?;
    qp.recv(1, &inbox.whole()?)?;
    let connection = Connection::open_async(&qp, to, b"", LIMIT).await?;
    let len = next_of(&connection, &cq).await?.ok()?.len;
    inbox.read(0..len as usize)
}

fn main() -> Result<()> {
    let (near, far) = (device()?, device()?);
    let listener = Listener::bind(&far, ([127, 0, 0, 1], 0).into())?;
    let to = listener.local_addr();
    let server = thread::spawn(move || block_on(serve(&far, &listener)));
    assert_eq!(block_on(ask(&near, to))?, b"hello");
    server.join().expect("the server did not panic")
}
