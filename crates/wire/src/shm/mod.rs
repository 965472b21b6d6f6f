//! Links between ranks of one host: data stays in the sender's registered memory, and the receiver copies it from
//! there.

pub mod large_pages;
mod link;
pub mod mailbox;
mod pass_fd;
pub mod ping_pong;
pub mod reach;

use crate::bell::Bell;
use crate::connection::Stream;
use crate::endpoint::{Endpoint, Exchange, Join, Own, Transport, refused};
use crate::identity::Address;
use crate::life::{Life, Watch};
use crate::memory::map_peer;
use crate::poll::Waker;
use link::{ShmLink, ShmPort};
use rustix::fd::AsFd;
use std::io;
use std::sync::Arc;

const NAME: &str = "shm";

/// Always open: no transport between hosts is as fast.
pub const TRANSPORT: Transport = Transport {
    name: NAME,
    open: |options, _| match options.word_for(NAME) {
        Some(_) => refused("shared memory does not lead to other hosts".into()),
        None => Ok(Some(Box::new(Shm))),
    },
    needs: None,
};

struct Shm;

impl Endpoint for Shm {
    fn reaches(&self, own: &Address, peer: &Address) -> bool {
        own.host == peer.host
    }

    /// Memory, bell and life pass as descriptors.
    fn meet(&self, stream: &mut Stream, own: Own<'_>, exchange: Exchange) -> io::Result<Join> {
        let Stream::Unix(unix) = stream else {
            return Err(io::Error::other("descriptors pass between processes of one machine"));
        };
        let mut ours = vec![own.arena.fd(), own.waker.fd()];
        ours.extend(own.life.map(Life::fd));
        let theirs = match exchange {
            Exchange::SendFirst => {
                pass_fd::send(unix, &ours)?;
                pass_fd::receive(unix)?
            }
            Exchange::ReceiveFirst => {
                let theirs = pass_fd::receive(unix)?;
                pass_fd::send(unix, &ours)?;
                theirs
            }
        };
        let (got, wanted) = (theirs.len(), ours.len());
        let mut theirs = theirs.into_iter();
        let (Some(memory), Some(waker), life, true) =
            (theirs.next(), theirs.next(), theirs.next(), got == wanted)
        else {
            let what =
                format!("it passed {got} descriptors, not {wanted}: all ranks are elastic, or none is");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        let memory = map_peer(memory.as_fd())?;
        let bell = Bell::new(&memory, Waker::from_fd(waker));
        let life = life.map(|life| Arc::new(Watch::from_fd(life)));
        Ok(Box::new(move |mut streams, pair| {
            let stream = streams.pop().ok_or("it has no connection")?;
            let (position, theirs) = pair.positions;
            let link = ShmLink::new(pair.arena, (memory, bell), position, Arc::clone(pair.bell));
            let link = Arc::new(link);
            let port = ShmPort::new(Arc::clone(&link), stream, theirs, pair.terms, life.clone());
            Ok((link, Box::new(port), life))
        }))
    }
}
