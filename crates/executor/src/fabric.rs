//! The endpoint of a rank on the fabric that its settings choose.

use crate::error::Error;
use crate::options::Options;
use hocket_fabric::Endpoint;
use hocket_wire::fabric::Shared;
use hocket_wire::memory::Arena;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The endpoint that `options` ask for. Usage: something else that they ask for cannot be beside it. System: it cannot be
/// opened.
pub fn open(options: &Options, arena: &Arc<Arena>) -> Result<Option<Arc<Shared>>, Error> {
    let failed = |cause: &dyn std::fmt::Display| {
        let host = &options.host;
        Error::System(format!(
            "host {host} cannot use the fabric of HOCKET_FABRIC: {cause} (`hocket doctor` lists providers)"
        ))
    };
    let Some(fabric) = options.fabric else { return Ok(None) };
    let Some(choice) = fabric.choice().map_err(|cause| failed(&cause))? else { return Ok(None) };
    if options.tls {
        let what = "payloads on a fabric are not encrypted: HOCKET_TLS and HOCKET_FABRIC exclude each other";
        return Err(Error::Usage(what.into()));
    }
    if options.emulated_links.is_some() {
        let what = "an emulated network slows TCP, not a fabric: use a testbed, or leave HOCKET_FABRIC out";
        return Err(Error::Usage(what.into()));
    }
    let bind = options.bind.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let endpoint = Endpoint::open(choice, bind).map_err(|cause| failed(&cause))?;
    Shared::new(Box::new(endpoint), arena).map(Some).map_err(|cause| failed(&cause))
}
