//! The engine: sockets, readiness, clock, timers, doorbells, progress threads.
