//! The link to a rank of another host: one or several connections, plain or within TLS, that share its messages.

use super::{Framed, Lane, Pace, Stream, Terms};
use crate::bell::Bell;
use crate::link::{Link, Message, Port, Post, Sink, Turn};
use crate::memory::{Mapping, Region};
use crate::poll::{Poller, Readiness};
use crate::tcp::Info;
use hocket_ids::Rank;
use hocket_protocol::frame::Frame;
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The half for all threads.
pub struct TcpLink {
    rank: Rank,
    cards: usize,
    framed: Framed,
}

impl TcpLink {
    /// A link to `rank` over this many connections, on this many cards in turns; `checksums`: frames carry them; `bell`: that of
    /// our own I/O thread.
    pub fn new(rank: Rank, lanes: usize, cards: usize, checksums: bool, bell: Arc<Bell>) -> Self {
        Self { rank, cards, framed: Framed::new(lanes, cards, checksums, bell) }
    }
}

impl Link for TcpLink {
    fn rank(&self) -> Rank {
        self.rank
    }

    /// Nothing to prepare: the kernel copies from and to any memory.
    fn register(&self, _: &Region) -> io::Result<()> {
        Ok(())
    }

    fn memory(&self) -> Option<&Arc<Mapping>> {
        None
    }

    fn post(&self, post: Post) -> io::Result<()> {
        self.framed.post(post)
    }

    fn send(&self, message: Message) -> io::Result<()> {
        self.framed.message(message)
    }

    fn abort(&self, rank: Rank, why: Why, text: &str) {
        self.framed.abort(rank, why, text);
    }

    fn say(&self, word: Word) -> io::Result<()> {
        self.framed.control(Frame::Word(word))
    }

    fn has_left(&self) -> bool {
        self.framed.has_left()
    }

    fn sent_bytes(&self) -> u64 {
        self.framed.sent_bytes()
    }

    fn cards(&self) -> Option<usize> {
        Some(self.cards)
    }

    fn info(&self) -> Option<Info> {
        self.framed.info()
    }
}

/// The half that the I/O thread polls.
pub struct TcpPort {
    link: Arc<TcpLink>,
    lanes: Vec<Lane>,
}

impl TcpPort {
    /// Over `streams`, by lane; `pace` if the network is emulated.
    pub fn new(link: Arc<TcpLink>, streams: Vec<Stream>, terms: Terms, pace: Option<&Pace>) -> Self {
        let streams = streams.into_iter().enumerate();
        let lane = |(number, stream)| Lane::new(number, stream, terms, pace.cloned());
        Self { link, lanes: streams.map(lane).collect() }
    }
}

impl Port for TcpPort {
    fn watch(&self, poller: &Poller, number: u32) -> io::Result<()> {
        self.lanes.iter().zip(0..).try_for_each(|(lane, at)| poller.add(lane.fd(), number, at))
    }

    fn handle_ready(&mut self, ready: Readiness) {
        self.lanes[ready.part as usize].handle_ready(ready);
    }

    fn poll(&mut self, sink: &mut dyn Sink, now: Duration) -> Turn {
        let mut busy = false;
        for lane in &mut self.lanes {
            busy |= lane.poll(&self.link.framed, sink, now, false, &mut |_| Ok(()));
        }
        Turn { busy, again: self.lanes.iter().filter_map(Lane::held).min() }
    }

    fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.is_idle(&self.link.framed))
    }

    fn pause_max(&self) -> Duration {
        self.lanes.iter().map(Lane::pause_max).min().unwrap_or(Duration::MAX)
    }

    fn stop(&mut self) {
        self.link.framed.drop_messages();
        self.lanes.iter_mut().for_each(Lane::stop);
    }

    fn enter(&mut self, epoch: u64) -> io::Result<()> {
        self.link.framed.drop_messages();
        for lane in &mut self.lanes {
            lane.enter(&self.link.framed, epoch);
        }
        Ok(())
    }

    fn close(&mut self, sink: &mut dyn Sink) -> bool {
        let mut done = true;
        for lane in &mut self.lanes {
            done &= lane.close(&self.link.framed, sink, &mut |_| Ok(()));
        }
        done
    }
}
