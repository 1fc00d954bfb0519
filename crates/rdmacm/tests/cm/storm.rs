//! Many ids at once that change their minds: whatever crosses whatever, every call returns, every
//! id can be destroyed, and the listener still serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_rdmacm::{EventKind, IdEvent};

use crate::common::*;

const CLIENTS: usize = 6;
const ROUNDS: usize = 60;

/// Numbers that a seed decides.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % sides
    }
}

fn seed() -> u64 {
    match std::env::var("WEFT_SEED") {
        Ok(seed) => seed.parse().expect("WEFT_SEED is a number"),
        Err(_) => u64::from(std::process::id()) * 0x9E37_79B9 + 1,
    }
}

#[test]
fn ids_may_change_their_minds_at_any_time() {
    let seed = seed();
    println!("WEFT_SEED={seed}");
    let server = Arc::new(Server::at(loopback(), 4));
    let done = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (addr, done) = (server.addr, Arc::clone(&done));
            std::thread::spawn(move || {
                let mut dice = Dice(seed.wrapping_add(n as u64 * 7919) | 1);
                for _ in 0..ROUNDS {
                    one_life(addr, &mut dice);
                }
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    serve(&server, &mut Dice(seed | 1), &done);
    for client in clients {
        client.join().expect("every life ends");
    }
    while !server.channel.is_empty() {
        answer(next(&server.channel), &mut Dice(1), &mut Vec::new());
    }
    let last = Server::at(loopback(), 0);
    prove_alive(&last);
}

/// A client that gives up at some point.
fn one_life(addr: std::net::SocketAddr, dice: &mut Dice) {
    let client = Client::connecting(addr, b"");
    match dice.roll(5) {
        0 => {}
        1 => drop(client.id.disconnect()),
        2 => client.side.qp.destroy().map(drop).unwrap(),
        _ => {
            let event = next(&client.channel);
            if event.event.kind == EventKind::Established && dice.roll(2) == 0 {
                client.id.disconnect().unwrap();
            }
            event.owner().acknowledge();
        }
    }
    client.id.destroy();
    assert!(client.channel.is_empty(), "an event after the end");
}

fn serve(server: &Server, dice: &mut Dice, done: &AtomicUsize) {
    let mut lives = Vec::new();
    while done.load(Ordering::SeqCst) < CLIENTS {
        if server.channel.is_empty() {
            std::thread::yield_now();
            continue;
        }
        answer(next(&server.channel), dice, &mut lives);
    }
    for (id, side) in lives {
        finish(&id, &side);
    }
}

type Life = (Arc<weft_rdmacm::CmId>, Side);

fn answer(delivery: IdEvent, dice: &mut Dice, lives: &mut Vec<Life>) {
    delivery.owner().acknowledge();
    if delivery.event.kind != EventKind::ConnectRequest {
        return;
    }
    match dice.roll(5) {
        0 => delivery.id.reject(b"no").unwrap(),
        1 => delivery.id.destroy(),
        _ => {
            let side = ready_side();
            // The client may have gone.
            let accepted = delivery.id.accept(&params(b""), &side.qp).is_ok();
            if accepted && dice.roll(2) == 0 {
                lives.push((delivery.id, side));
            } else {
                finish(&delivery.id, &side);
            }
        }
    }
}

/// Events of the id that were not read go with it.
fn finish(id: &weft_rdmacm::CmId, side: &Side) {
    id.destroy();
    side.qp.destroy().unwrap();
}
