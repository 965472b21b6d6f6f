//! What comes on one lane, or through one mailbox, held against the epoch of members that is in force here
//! (`hocket_protocol::drain`).

use crate::link::{Arrivals, Post};
use hocket_protocol::drain::{Drain, Verdict};
use hocket_protocol::planted::Rules;

/// Limit of posts kept for an epoch that has not begun here: far more than one launch of each program needs.
const KEPT_MAX: usize = 1 << 20;

/// The state of one lane.
#[derive(Debug)]
pub struct Drained {
    drain: Drain,
    /// Posts of the epoch that the peer has begun and we have not.
    kept: Vec<Post>,
}

impl Drained {
    /// Of a lane that both ends open for epoch `epoch`.
    pub fn new(epoch: u64) -> Self {
        Self { drain: Drain::opened(1, epoch, Rules::default()), kept: Vec::new() }
    }

    /// The peer begins an epoch.
    pub fn handle_marker(&mut self, epoch: u64, sink: &mut dyn Arrivals) -> Result<(), String> {
        self.kept.clear();
        self.drain.handle_marker(0, epoch).map_err(|error| error.to_string())?;
        sink.began(epoch);
        Ok(())
    }

    /// The peer posts: passed on, dropped or kept.
    pub fn handle_post(&mut self, post: Post, sink: &mut dyn Arrivals) -> Result<(), String> {
        match self.drain.verdict(0) {
            Verdict::Take => sink.posted(post),
            Verdict::Discard => Ok(()),
            Verdict::Keep if self.kept.len() == KEPT_MAX => {
                Err(format!("posted {KEPT_MAX} notices of an epoch that has not begun here"))
            }
            Verdict::Keep => {
                self.kept.push(post);
                Ok(())
            }
        }
    }

    /// Whether a payload that begins now lands, or is thrown away.
    pub fn lands(&self) -> Result<bool, String> {
        match self.drain.verdict(0) {
            Verdict::Take => Ok(true),
            Verdict::Discard => Ok(false),
            Verdict::Keep => Err("sent data of an epoch that has not begun here".into()),
        }
    }

    /// Passes on what was kept for the epoch that has begun here since; before anything else comes on the lane.
    pub fn deliver(&mut self, sink: &mut dyn Arrivals) -> Result<(), String> {
        if self.kept.is_empty() || self.drain.verdict(0) != Verdict::Take {
            return Ok(());
        }
        std::mem::take(&mut self.kept).into_iter().try_for_each(|post| sink.posted(post))
    }

    /// Whether something was kept for the epoch in force.
    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty() && self.drain.verdict(0) == Verdict::Take
    }

    /// Nothing of the epoch in force lands any more.
    pub fn stop(&mut self) {
        self.drain.stop();
    }

    /// An epoch is in force here.
    pub fn enter(&mut self, epoch: u64) {
        self.drain.enter(epoch);
        if self.drain.verdict(0) == Verdict::Discard {
            self.kept.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Landing;
    use hocket_ids::Rank;
    use hocket_protocol::frame::Data;
    use hocket_protocol::why::Why;

    #[derive(Default)]
    struct Taker(Vec<u32>);

    impl Arrivals for Taker {
        fn landing(&mut self, _: &Data) -> Result<Landing, String> {
            Err("no data here".into())
        }
        fn landed(&mut self, _: &Data) {}
        fn posted(&mut self, post: Post) -> Result<(), String> {
            let Post::Given { send } = post else { return Err("another post".into()) };
            self.0.push(send);
            Ok(())
        }
        fn aborted(&mut self, _: Rank, _: Why, _: &str) -> Result<(), String> {
            Ok(())
        }
    }

    fn post(drained: &mut Drained, taker: &mut Taker, send: u32) {
        drained.handle_post(Post::Given { send }, taker).unwrap();
    }

    /// The first announcements of a faster member would be lost, and the step would hang; or those of an epoch that
    /// never began here would be taken for this one's.
    #[test]
    fn posts_of_the_next_epoch_wait_for_it() {
        let (mut drained, mut taker) = (Drained::new(1), Taker::default());
        post(&mut drained, &mut taker, 1);
        drained.stop();
        post(&mut drained, &mut taker, 2);
        assert_eq!(drained.lands(), Ok(false));
        drained.handle_marker(2, &mut taker).unwrap();
        post(&mut drained, &mut taker, 3);
        assert!(drained.lands().is_err() && !drained.has_kept());
        drained.handle_marker(3, &mut taker).unwrap();
        post(&mut drained, &mut taker, 4);
        drained.deliver(&mut taker).unwrap();
        assert_eq!(taker.0, [1]);
        drained.enter(3);
        assert!(drained.has_kept());
        drained.deliver(&mut taker).unwrap();
        post(&mut drained, &mut taker, 5);
        assert_eq!((&taker.0[..], drained.lands()), (&[1, 4, 5][..], Ok(true)));
        // Passed over: the peer's epoch 4 never begins here.
        drained.handle_marker(4, &mut taker).unwrap();
        post(&mut drained, &mut taker, 6);
        drained.enter(5);
        drained.deliver(&mut taker).unwrap();
        assert_eq!((taker.0.len(), drained.lands()), (3, Ok(false)));
    }
}
