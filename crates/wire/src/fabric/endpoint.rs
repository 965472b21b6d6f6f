//! The transport: which fabric a rank opens, and what ranks tell each other of theirs.

use super::link::FabricLink;
use super::port::FabricPort;
use super::shared::Shared;
use crate::connection::Stream;
use crate::endpoint::{Endpoint, Exchange, Join, Need, Opened, Options, Own, Transport, refused};
use crate::identity::Address;
use crate::memory::Arena;
use crate::shaper::{Pace, Shaper};
use hocket_fabric::{Carrier, Choice, Endpoint as End, FabricError, providers};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const NAME: &str = "fabric";
/// EFA, where this machine has it.
const AUTO: &str = "auto";
const EFA: &str = "efa";

/// The words for it are those of [`Choice::ALL`], and [`AUTO`].
pub const TRANSPORT: Transport = Transport { name: NAME, open, needs: Some(needs) };

fn needs() -> Need {
    let named = |all: BTreeSet<String>| {
        if all.is_empty() { "no provider of tagged messages".into() } else { Vec::from_iter(all).join(", ") }
    };
    let found = providers().map(named).map_err(|cause| cause.to_string());
    let hint = "install libfabric, 1.17 or later (libfabric1), to send gradients over EFA; everything else works without";
    ("libfabric", found, hint)
}

fn has_efa() -> Result<bool, FabricError> {
    match providers() {
        Err(FabricError::Library(_)) => Ok(false),
        all => Ok(all?.contains(EFA)),
    }
}

fn open(options: &Options, arena: &Arc<Arena>) -> Opened {
    let failed = |cause: &dyn Display| {
        let host = &options.host;
        io::Error::other(format!(
            "host {host} cannot use the fabric of HOCKET_WIRE: {cause} (`hocket doctor` lists providers)"
        ))
    };
    let Some(word) = options.word_for(NAME) else { return Ok(None) };
    if word == AUTO && !has_efa().map_err(|cause| failed(&cause))? {
        return Ok(None);
    }
    let Some(choice) = Choice::from_name(if word == AUTO { EFA } else { word }) else {
        let known = Choice::ALL.map(|choice| choice.name).join(", ");
        return refused(format!("`{word}` is no fabric; there are {known} and {AUTO}"));
    };
    if options.tls {
        let what = "payloads on a fabric are not encrypted: HOCKET_TLS and a fabric exclude each other";
        return refused(what.into());
    }
    let bind = options.bind.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let carrier = End::open(choice, bind).map_err(|cause| failed(&cause))?;
    let shaper = options.emulated_links.clone().map(Shaper::open).transpose()?.map(Arc::new);
    let fabric = Fabric::new(Box::new(carrier), arena, options.elastic.is_none());
    Ok(Some(Box::new(Fabric { shaper, ..fabric.map_err(|cause| failed(&cause))? })))
}

/// A rank's end of a fabric.
pub struct Fabric {
    shared: Arc<Shared>,
    in_place: bool,
    shaper: Option<Arc<Shaper>>,
}

impl Fabric {
    /// Over an endpoint whose messages are large enough; `in_place`: payloads land where they belong, also after the epoch
    /// has ended.
    pub fn new(carrier: Box<dyn Carrier>, arena: &Arc<Arena>, in_place: bool) -> Result<Self, String> {
        Ok(Self { shared: Shared::new(carrier, arena)?, in_place, shaper: None })
    }
}

impl Endpoint for Fabric {
    fn reaches(&self, _: &Address, _: &Address) -> bool {
        true
    }

    fn meet(&self, stream: &mut Stream, _: Own<'_>, _: Exchange) -> io::Result<Join> {
        let address = exchange(stream, self.shared.address()).map_err(|cause| {
            let what = format!(
                "it gave no address on the fabric (HOCKET_WIRE must be the same on all ranks): {cause}"
            );
            io::Error::new(cause.kind(), what)
        })?;
        let (shared, in_place, shaper) = (Arc::clone(&self.shared), self.in_place, self.shaper.clone());
        Ok(Box::new(move |mut streams, pair| {
            let stream = streams.pop().ok_or("it has no connection")?;
            let link = FabricLink::new(shared, pair.terms.checksums, Arc::clone(pair.bell));
            let link = Arc::new(link);
            let pace = shaper.map(|shaper| Pace { shaper, destination: pair.rank.index() });
            let port = FabricPort::new(Arc::clone(&link), stream, &address, pair.terms, in_place, pace);
            Ok((link, Box::new(port.map_err(|error| error.to_string())?), None))
        }))
    }
}

/// Tells the other end our address, and learns its own.
fn exchange(stream: &mut Stream, own: &[u8]) -> io::Result<Vec<u8>> {
    let len = u16::try_from(own.len()).map_err(io::Error::other)?;
    stream.write_all(&len.to_le_bytes())?;
    stream.write_all(own)?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut address = vec![0; usize::from(u16::from_le_bytes(len))];
    stream.read_exact(&mut address)?;
    Ok(address)
}
