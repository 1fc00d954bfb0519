//! Attackers with a host of their own, in a network namespace: strangers without the key or with
//! another, and whoever can record packets or give them false source addresses. Unmodified
//! programs are what they attack. `docs/threat-model.md` says what each may not achieve.

mod kit;
mod peer;
mod target;

mod floods;
mod hostile;
mod icmp;
mod link_local;
mod replay;
mod slow_mpa;
mod unkeyed;
mod wrong_key;
