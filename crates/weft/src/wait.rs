//! Waiting for a queue whose bell is rung: as a future, with or without a time limit, and by
//! blocking the thread.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weft_os::clock::{self, Moment};
use weft_reactor::{Pollable, Readiness};
use weft_sync::{Condvar, Mutex};

use crate::Result;
use crate::bell::Bell;
use crate::host::LocalHost;

/// Rings a bell when a timer of the reactor is due.
struct Alarm(Arc<Bell>);

impl Pollable for Alarm {
    fn ready(&self, _: Readiness) {}

    fn timeout(&self, _: Moment) {
        self.0.ring();
    }
}

/// A time until when something is waited for.
#[derive(Clone, Copy)]
pub(crate) struct Limit<'a> {
    pub until: Moment,
    /// Whose reactor looks at the clock.
    pub host: &'a LocalHost,
}

/// The future of what `look` finds, which is called whenever the bell was rung; nothing once the
/// time is over. Dropping it loses nothing that `look` has left in its queue.
pub(crate) struct Waiting<'a, Look> {
    bell: &'a Arc<Bell>,
    look: Look,
    limit: Option<Limit<'a>>,
    token: Option<u64>,
    /// A timer cannot be cancelled; without its alarm it does nothing.
    alarm: Option<Arc<Alarm>>,
}

impl<'a, Look> Waiting<'a, Look> {
    pub fn new(bell: &'a Arc<Bell>, limit: Option<Limit<'a>>, look: Look) -> Self {
        Self { bell, look, limit, token: None, alarm: None }
    }

    fn leave(&mut self) {
        if let Some(token) = self.token.take() {
            self.bell.leave(token);
        }
    }

    fn set_alarm(&mut self) {
        if let (Some(limit), None) = (self.limit, &self.alarm) {
            let alarm = Arc::new(Alarm(Arc::clone(self.bell)));
            let source: Arc<dyn Pollable> = alarm.clone();
            limit.host.set_timer(limit.until, &source);
            self.alarm = Some(alarm);
        }
    }
}

impl<T, Look: FnMut() -> Result<Option<T>> + Unpin> Future for Waiting<'_, Look> {
    type Output = Result<Option<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.leave();
        // Before the look: a ring in between must find the waker.
        self.token = Some(self.bell.enlist(context.waker().clone()));
        let found = (self.look)();
        let is_over = self.limit.is_some_and(|limit| limit.until <= clock::now());
        if matches!(found, Ok(None)) && !is_over {
            self.set_alarm();
            return Poll::Pending;
        }
        self.leave();
        Poll::Ready(found)
    }
}

impl<Look> Drop for Waiting<'_, Look> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Wakes the thread of [`block_on`]. Not by `unpark`, whose token may be the application's.
#[derive(Default)]
struct Signal {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl std::task::Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock() = true;
        self.changed.notify_all();
    }
}

impl Signal {
    fn wait(&self) {
        *self.changed.wait_while(self.is_woken.lock(), |is_woken| !*is_woken) = false;
    }
}

/// Runs a future on this thread, which sleeps meanwhile.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => signal.wait(),
        }
    }
}
