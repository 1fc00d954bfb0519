//! Threads of a scope whose want is an error: the standard library's own call panics.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use anyhow::{Context, Result};

/// Starts a thread of `scope`.
///
/// # Errors
/// The system has none left.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, work).context("starting a thread")
}
