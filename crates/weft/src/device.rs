//! Devices and protection domains; what is made of them stands beside it.

use std::fmt;
use std::sync::Arc;

use weft_host::Context;
use weft_verbs::Pd;

use crate::bell::Bell;
use crate::host::{DeviceKind, LocalHost};
use crate::{Error, Result};

/// An open device.
#[derive(Clone)]
pub struct Device {
    host: LocalHost,
    context: Arc<Context>,
    kind: DeviceKind,
    /// Rung for each event of its objects.
    bell: Arc<Bell>,
}

impl Device {
    /// Opens a device of `host`, and starts the threads that work for it.
    ///
    /// # Errors
    /// [`Error::System`] if there is no descriptor or thread left; [`Error::Invalid`] if `WEFT_KEY`
    /// of the environment, where the host has its settings from that, cannot be used.
    pub fn open(host: &LocalHost, kind: DeviceKind) -> Result<Self> {
        let bell = Arc::default();
        let context = host.open(kind, &bell)?;
        Ok(Self { host: host.clone(), context, kind, bell })
    }

    /// The host that it is a device of.
    pub fn host(&self) -> &LocalHost {
        &self.host
    }

    /// Which of the devices it is.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Makes a protection domain: queue pairs reach only regions of their own domain.
    pub fn protection_domain(&self) -> ProtectionDomain {
        let pd = self.context.alloc_pd();
        ProtectionDomain { inner: Arc::new(PdInner { device: self.clone(), pd }) }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Whether both were opened as the same device of the same host.
    fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.host.is_same(&other.host)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Device").field(&self.kind).finish()
    }
}

/// What a protection domain is made of; it ends with the last handle.
struct PdInner {
    device: Device,
    pd: Arc<Pd>,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // All that is made in the domain holds it, so nothing uses it any more.
        let _unused = self.device.context.dealloc_pd(&self.pd);
    }
}

/// A protection domain.
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<PdInner>,
}

impl ProtectionDomain {
    /// The device that it is a domain of.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.inner.pd
    }

    pub(crate) fn context(&self) -> &Context {
        &self.inner.device.context
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether `other` is open on the same device as this.
    pub(crate) fn check_device(&self, during: &'static str, other: &Device) -> Result<()> {
        if self.inner.device.is_same(other) {
            return Ok(());
        }
        Err(Error::invalid(during, "a queue of it is one of another device"))
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("ProtectionDomain").field(&self.inner.pd.id()).finish()
    }
}
