//! Interposed functions after which a socket may not listen any more.
//!
//! What is offered to a listener that nobody serves would wait for ever. So it is dismissed once
//! no descriptor of this process leads to it, or it was shut down.

use std::ffi::{c_int, c_uint};
use std::time::Duration;

use weft_os::clock;

use crate::hooks::{errno, fail, is_foreign, own_listeners};
use crate::listener::ListenerTable;
use crate::real::next;
use crate::registry::Registry;
use crate::sys::Inode;
use crate::{filters, guard, late_writes, sys};

/// How long `shutdown` tries to get a lock, which its own thread has if it is in a signal handler.
const LOCKED_LIMIT: Duration = Duration::from_millis(100);

/// A listener of this process, at a descriptor that is about to be closed.
struct EndingListener {
    listeners: &'static ListenerTable,
    socket: Inode,
}

/// A listener of a parent, at such a descriptor of a child.
struct InheritedListener {
    listeners: &'static ListenerTable,
    is_own: bool,
    socket: Inode,
}

impl InheritedListener {
    fn at(fd: c_int) -> Option<Self> {
        let (listeners, is_own) = Registry::inherited_offers().filter(|_| !is_foreign())?;
        let socket = sys::inode(fd)?;
        listeners.has_inherited(is_own, socket).then_some(Self { listeners, is_own, socket })
    }
}

impl EndingListener {
    fn at(fd: c_int) -> Option<Self> {
        if is_foreign() {
            return None;
        }
        let listeners = own_listeners()?;
        let socket = sys::inode(fd)?;
        // A child of `vfork` has descriptors of its own, but its parent's memory.
        let found = listeners.find(socket).filter(|_| Registry::is_own());
        found.map(|_| Self { listeners, socket })
    }
}

/// Does `close`, which closes `fd`; a listener there is dismissed with its last descriptor.
fn closing(fd: c_int, close: impl FnOnce() -> c_int) -> c_int {
    let listener = EndingListener::at(fd);
    let inherited = InheritedListener::at(fd);
    let done = close();
    if let Some(InheritedListener { listeners, is_own, socket }) = inherited {
        let is_over = |other| other == socket && sys::find(socket).is_empty();
        keeping_errno(|| listeners.leave_inherited(is_own, is_over));
    }
    if let Some(EndingListener { listeners, socket }) = listener {
        keeping_errno(|| {
            listeners.dismiss(|other, _| other == socket && sys::find(socket).is_empty());
        });
    }
    done
}

fn keeping_errno(act: impl FnOnce()) {
    let error = errno();
    let _inside = guard::enter();
    act();
    fail(error);
}

/// Several descriptors were closed.
fn handle_many_closed() {
    if is_foreign() {
        return;
    }
    if let Some((listeners, is_own)) = Registry::inherited_offers() {
        keeping_errno(|| listeners.leave_inherited(is_own, |socket| sys::find(socket).is_empty()));
    }
    let listeners = own_listeners().filter(|_| Registry::is_own());
    if let Some(listeners) = listeners {
        keeping_errno(|| listeners.dismiss(|socket, _| sys::find(socket).is_empty()));
    }
}

/// `close`: a closed listener is no longer served.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let real = next!(close as unsafe extern "C" fn(c_int) -> c_int);
    if is_foreign() {
        // SAFETY: the application's own argument.
        return unsafe { real(fd) };
    }
    if let Some(env) = Registry::current().filter(|_| Registry::is_own()).map(Registry::env) {
        late_writes::forget(fd);
        env.pair_lives.end(fd);
        if !env.watches.is_empty() {
            env.watches.forget(fd);
        }
    }
    // SAFETY: the application's own argument.
    closing(fd, || unsafe { real(fd) })
}

/// Makes a system call of `dup2`, `dup3`, `close_range` and `shutdown`: their definitions in the C
/// library do no more, and could be found only with the lock of the loader, which another thread
/// may have had when this process was forked.
fn call(number: libc::c_long, [first, second, third]: [c_int; 3]) -> c_int {
    // SAFETY: the application's own arguments, all of them numbers.
    unsafe { libc::syscall(number, first, second, third) as c_int }
}

/// `dup3`, which closes `to`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if !is_foreign() && Registry::is_own() {
        late_writes::forget(to);
    }
    closing(to, || call(libc::SYS_dup3, [from, to, flags]))
}

/// `dup2`, which does so unless both are one.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from != to {
        return dup3(from, to, 0);
    }
    let is_open = call(libc::SYS_fcntl, [from, libc::F_GETFD, 0]) >= 0;
    if is_open { to } else { fail(libc::EBADF) }
}

/// `close_range`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags == 0 && !is_foreign() && Registry::is_own() {
        late_writes::forget_all(first, last);
    }
    let done = call(libc::SYS_close_range, [first.cast_signed(), last.cast_signed(), flags]);
    handle_many_closed();
    done
}

/// The application is about to end its half of the connection at `fd`, if there is one.
fn prepare_end(fd: c_int) {
    let registry = Registry::current().filter(|registry| registry.conns.has_app_sockets());
    let until = clock::now() + LOCKED_LIMIT;
    if let Some(conn) = registry.and_then(|registry| registry.conns.find_until(fd, until)) {
        conn.prepare_end(fd, until);
    }
}

/// `shutdown`, by which a socket stops listening, or a connection sends no more.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let listener = EndingListener::at(fd);
    if how == libc::SHUT_WR && !is_foreign() && !filters::are_set() {
        keeping_errno(|| prepare_end(fd));
    }
    let done = call(libc::SYS_shutdown, [fd, how, 0]);
    late_writes::handle_shutdown(fd, how, done == 0);
    if let Some(EndingListener { listeners, socket }) = listener {
        let listens = || sys::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Some(1);
        keeping_errno(|| listeners.dismiss(|other, _| other == socket && !listens()));
    }
    done
}
