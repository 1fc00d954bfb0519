//! `weft cp`: files to and from other hosts, over a channel of `weft-session`.
//!
//! One end sends, the other receives; which of them is here does not matter to either, and from
//! host to host both are far and this process passes messages on ([`relay`]). The sender lists what
//! there is ([`source`]); the receiver answers for each file whether it has it, and which bytes it
//! wants ([`receive`]); the sender reads, hashes and sends these ([`send`]), small files together;
//! the receiver checks the hash of each piece, writes it where it belongs and renames the file once
//! it is whole. Nobody waits for an answer before going on: what is listed, wanted, sent and
//! finished overlaps, and the first bytes are sent before they are wanted.
//!
//! The core has no I/O: [`messages`], [`byte_ranges`], [`record`], [`partial`] (what is durable
//! and in which order it becomes so), [`plan`] (what goes when), [`rel_path`], [`path_set`],
//! [`target`]. The rest is a thin shell of files and threads.
//!
//! Invariant: what a far end says is checked before anything is done: it names files and bytes of
//! this copy only, and nothing outside of the destination is written.
//!
//! Order of calls: [`command::main`] here, [`far::serve`] there.
#![forbid(unsafe_code)]

pub mod asked_names;
pub mod byte_ranges;
pub mod byte_stream;
pub mod command;
pub mod destination;
pub mod far;
pub mod messages;
pub mod meter;
pub mod partial;
pub mod path_set;
pub mod plan;
pub mod receive;
mod received_file;
pub mod record;
pub mod rel_path;
pub mod relay;
pub mod send;
mod sent_file;
pub mod source;
pub mod target;
mod threads;
pub mod throttle;
pub mod wildcard;
mod work_queue;
