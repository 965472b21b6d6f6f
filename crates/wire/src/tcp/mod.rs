//! The link to a rank of another host: one or several connections, plain or within TLS, that share its messages.

use crate::connection::{Framed, Lane, Stream};
use crate::endpoint::{Endpoint, Exchange, Join, Own, Transport, refused};
use crate::identity::Address;
use crate::lanes;
use crate::link::{Port, Sink, Turn};
use crate::poll::{Poller, Readiness};
use crate::shaper::{Pace, Shaper};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "tcp";

/// Always open: it leads everywhere.
pub const TRANSPORT: Transport = Transport {
    name: NAME,
    open: |options, _| {
        if let Some(word) = options.word_for(NAME).filter(|word| !word.is_empty()) {
            return refused(format!("`{NAME}` is without `:{word}`"));
        }
        let shaper = options.emulated_links.clone().map(Shaper::open).transpose()?;
        Ok(Some(Box::new(Tcp { shaper: shaper.map(Arc::new) })))
    },
    needs: None,
};

struct Tcp {
    shaper: Option<Arc<Shaper>>,
}

impl Endpoint for Tcp {
    fn reaches(&self, _: &Address, _: &Address) -> bool {
        true
    }

    fn lanes(&self, own: &Address, peer: &Address) -> RangeInclusive<usize> {
        lanes::lanes(own, peer)
    }

    fn meet(&self, _: &mut Stream, _: Own<'_>, _: Exchange) -> io::Result<Join> {
        let shaper = self.shaper.clone();
        Ok(Box::new(move |streams, pair| {
            let cards = lanes::cards(pair.addresses.0, pair.addresses.1);
            let bell = Arc::clone(pair.bell);
            let link = Arc::new(Framed::new(streams.len(), cards, pair.terms.checksums, bell));
            let pace = shaper.map(|shaper| Pace { shaper, destination: pair.rank.index() });
            let streams = streams.into_iter().enumerate();
            let lane = |(number, stream)| Lane::new(number, stream, pair.terms, pace.clone());
            let port = TcpPort { link: Arc::clone(&link), lanes: streams.map(lane).collect() };
            for (number, lane) in port.lanes.iter().enumerate() {
                link.note_seen(number, lane.info());
            }
            Ok((link, Box::new(port), None))
        }))
    }
}

struct TcpPort {
    link: Arc<Framed>,
    lanes: Vec<Lane>,
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
            busy |= lane.poll(&self.link, sink, now, false, &mut |_| Ok(()));
        }
        Turn { busy, again: self.lanes.iter().filter_map(Lane::held).min() }
    }

    fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.is_idle(&self.link))
    }

    fn pause_max(&self) -> Duration {
        self.lanes.iter().map(Lane::pause_max).min().unwrap_or(Duration::MAX)
    }

    fn stop(&mut self) {
        self.link.drop_messages();
        self.lanes.iter_mut().for_each(Lane::stop);
    }

    fn enter(&mut self, epoch: u64) -> io::Result<()> {
        self.link.drop_messages();
        for lane in &mut self.lanes {
            lane.enter(&self.link, epoch);
        }
        Ok(())
    }

    fn close(&mut self, sink: &mut dyn Sink) -> bool {
        let mut done = true;
        for lane in &mut self.lanes {
            done &= lane.close(&self.link, sink, &mut |_| Ok(()));
        }
        done
    }
}
