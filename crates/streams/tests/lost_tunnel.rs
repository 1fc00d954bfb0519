//! What the sockets of a forward see when the channel between its ends fails.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use weft_session::MessageChannel;
use weft_streams::forward::{self, ForwardEnd};
use weft_streams::messages::ForwardSpec;
use weft_testkit::free_port;

/// Two ends that are joined in this process.
fn joined() -> (MessageChannel, MessageChannel) {
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out) = std::io::pipe().unwrap();
    (MessageChannel::through(near_in, near_out), MessageChannel::through(far_in, far_out))
}

/// Runs one end until its channel fails, and tells when the other one is ready.
fn run(channel: MessageChannel, end: ForwardEnd, forward: ForwardSpec) -> mpsc::Receiver<()> {
    let (is_ready, ready) = mpsc::channel();
    thread::spawn(move || {
        let tell = || is_ready.send(()).unwrap();
        forward::run(&channel, end, &[forward], &|_| {}, &tell).unwrap_err();
    });
    ready
}

/// Who reads until the end would take what has come for all.
#[test]
fn connections_are_reset_at_both_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let forward = ForwardSpec {
        is_remote: false,
        bind: "127.0.0.1".into(),
        port: free_port(),
        to_host: "127.0.0.1".into(),
        to_port: listener.local_addr().unwrap().port(),
    };
    let (near, far) = joined();
    let tunnel = near.sender();
    let ready = run(near, ForwardEnd::Near, forward.clone());
    let _far_ready = run(far, ForwardEnd::Far, forward.clone());
    ready.recv().unwrap();
    let client = TcpStream::connect(("127.0.0.1", forward.port)).unwrap();
    let (server, _) = listener.accept().unwrap();
    for (mut from, mut to) in [(&client, &server), (&server, &client)] {
        from.write_all(b"a part").unwrap();
        to.read_exact(&mut [0; 6]).unwrap();
    }
    tunnel.abort("the path is gone");
    drop(tunnel);
    for mut socket in [client, server] {
        let error = socket.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}
