//! The promises of every link, tested on all of them: TCP with one and several lanes, with checksums, within TLS,
//! shared memory, fabrics of libfabric's providers that need no card, and the reference. A new transport adds its pair to [`KINDS`].

mod bed;
mod epochs;
mod fakes;
mod pairs;

use crate::link::{Land, Post};
use bed::{Bed, SILENCE_MAX};
use hocket_ids::Rank;
use hocket_kernels::{DType, ReduceOp};
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use pairs::{IN_PLACE, KINDS, Kind};

/// Runs a test on every link; a failure names the link.
fn on_every_link(test: impl Fn(Bed)) {
    on_links(KINDS.iter().chain(&IN_PLACE), test);
}

/// Runs a test in which an end dies. Not on the fabric `shm`, whose ends share one mapping where they are in one process,
/// as here and nowhere else: the survivor's goes with the dead end's.
fn on_every_link_that_dies(test: impl Fn(Bed)) {
    on_links(KINDS.iter().chain(&IN_PLACE).filter(|(name, _)| !name.starts_with("shm")), test);
}

/// Runs a test on links that may go from epoch to epoch.
fn on_elastic_links(test: impl Fn(Bed)) {
    on_links(KINDS.iter(), test);
}

fn on_links<'a>(kinds: impl Iterator<Item = &'a Kind>, test: impl Fn(Bed)) {
    for (name, pair) in kinds {
        println!("{name}");
        test(Bed::new(pair()));
    }
}

/// An element count that needs many frames and that no power of two divides.
const MANY: usize = 300_001;

/// A lost or overtaken announcement would stall a step, or reduce memory that is still being written.
#[test]
fn posts_keep_their_order_and_none_is_lost() {
    on_every_link(|mut bed| {
        // More than any ring or socket holds while the other end does not poll.
        let count = 20_000;
        for op in 0..count {
            for end in 0..2 {
                let post = match bed.ends[end].link.memory() {
                    Some(_) => Post::Taken { program: 1, instance: 2, op },
                    None => Post::Posted { program: 1, instance: 2, op, tag: 0 },
                };
                bed.ends[end].link.post(post).unwrap();
            }
        }
        bed.until("all posts", |bed| bed.ends.iter().all(|end| end.taker.posts.len() == count as usize));
        for end in &bed.ends {
            assert!(end.taker.posts.iter().copied().eq(0..count), "posts in another order");
        }
    });
}

/// A byte that is reduced twice or never is a wrong gradient.
#[test]
fn pieces_land_once_wherever_they_belong() {
    let (f32, f16) = (DType::F32, DType::F16);
    let lands = [
        (f32, Land::Store),
        (f16, Land::Cast { dtype: f32, wire: f16 }),
        (f16, Land::Reduce { op: ReduceOp::Sum, dtype: f32, wire: f16 }),
        (f32, Land::Reduce { op: ReduceOp::Sum, dtype: f32, wire: f32 }),
    ];
    on_every_link(|mut bed| {
        let mut op = 0;
        for (wire, land) in lands {
            for elements in [0, 1, 7, 65_536, MANY] {
                for from in 0..2 {
                    bed.message(from, op, elements, wire, land, 0);
                    op += 1;
                }
            }
        }
        bed.until("all messages", |bed| bed.is_complete(0..op));
        for op in 0..op {
            bed.check(op);
        }
    });
}

/// A bucket of tens of megabytes would need as much memory again, or end early.
#[test]
fn a_huge_message_arrives_whole() {
    on_every_link(|mut bed| {
        bed.message(0, 0, 5_000_000, DType::F32, Land::Store, 0);
        bed.until("the message", |bed| bed.is_complete(0..1));
        bed.check(0);
    });
}

/// The bucket that the next layer waits for would arrive last.
#[test]
fn the_most_urgent_message_begins_first() {
    on_every_link(|mut bed| {
        for (op, priority) in [(0, 9), (1, 1), (2, 5)] {
            bed.message(0, op, MANY, DType::F32, Land::Store, priority);
        }
        // All are queued before the sender moves a byte.
        bed.until("all posts", |bed| bed.hands_over(3));
        bed.until("all messages", |bed| bed.is_complete(0..3));
        let first = bed.ends[1].taker.order[0];
        let pushed = bed.ends[0].link.memory().is_none();
        assert!(!pushed || first == 1, "message {first} began first");
    });
}

/// A peer that reads nothing would fill this rank's memory, or block its other peers.
#[test]
fn a_sender_waits_for_a_receiver_that_does_not_look() {
    on_every_link(|mut bed| {
        for op in 0..16 {
            bed.message(0, op, MANY, DType::F32, Land::Store, 0);
        }
        // The receiver has posted, and now stops polling.
        bed.until("all posts", |bed| bed.hands_over(16));
        let mut turns = 0;
        while bed.poll_end(0) {
            turns += 1;
            assert!(turns < 1000, "the sender never waits");
        }
        assert!(bed.ends[0].port.is_idle(), "the sender spins");
        bed.until("all messages", |bed| bed.is_complete(0..16));
        for op in 0..16 {
            bed.check(op);
        }
    });
}

/// The job would hang, or the error would name no rank.
#[test]
fn a_peer_that_dies_in_a_message_is_named() {
    for victim in 0..2 {
        on_every_link_that_dies(|mut bed| {
            bed.message(0, 0, 4_000_000, DType::F32, Land::Store, 0);
            bed.until("the first bytes", |bed| {
                bed.ends[1].taker.landed > 0 || bed.ends[1].taker.is_complete(0)
            });
            let mut survivor = bed.kill(victim);
            survivor.until("the end", |end| !end.taker.ended.is_empty());
            assert!(
                survivor.taker.ended.iter().all(|(why, _)| *why == Why::Lost),
                "{:?}",
                survivor.taker.ended
            );
            assert_eq!(survivor.taker.left, 0);
            if victim == 1 && survivor.link.memory().is_none() {
                assert!(survivor.taker.sent.is_empty(), "sent to a rank that is gone");
            }
        });
    }
}

/// The other ranks would not know why the job failed, and would wait for messages that nobody needs.
#[test]
fn an_abort_arrives_whole_and_instead_of_messages() {
    on_every_link(|mut bed| {
        for op in 0..8 {
            bed.message(0, op, 1_000_000, DType::F32, Land::Store, 0);
        }
        bed.until("all posts", |bed| bed.hands_over(8));
        let pushed = bed.ends[0].link.memory().is_none();
        bed.ends[0].link.abort(Rank(7), Why::Violation, "rank 7 on b: é");
        bed.until("the abort", |bed| bed.ends[1].taker.aborted.is_some());
        let told = (Rank(7), Why::Violation, "rank 7 on b: é".to_owned());
        assert_eq!(bed.ends[1].taker.aborted, Some(told));
        bed.rest();
        assert!(!pushed || !bed.is_complete(0..8), "messages of a failed job");
        assert_eq!(bed.ends[1].taker.ended, []);
    });
}

/// The others would not know with which exit code a rank ended, or whom it waited for.
#[test]
fn words_arrive_in_order_before_a_goodbye() {
    on_every_link(|mut bed| {
        let words: Vec<Word> = (0..100).map(|code| Word::Exit { rank: Rank(7), code }).collect();
        for word in &words {
            bed.ends[0].link.say(*word).unwrap();
        }
        bed.say_goodbye(0);
        assert_eq!((&bed.ends[1].taker.heard, bed.ends[1].taker.left), (&words, 1));
    });
}

/// A hanging rank would never be noticed, or a merely slow one would be given up.
#[test]
fn silence_is_asked_about_and_borne_while_it_is_answered() {
    on_every_link(|mut bed| {
        bed.ends[0].taker.awaited = true;
        let pause = bed.ends[0].port.pause_max();
        assert!(pause < SILENCE_MAX / 4);
        let pauses = (SILENCE_MAX.as_nanos() / pause.as_nanos()) as u32;
        for _ in 0..5 * pauses {
            bed.clock += pause;
            bed.rest();
        }
        assert_eq!(bed.ends[0].taker.ended, [], "an answering rank was given up");
        // The other end hangs.
        for _ in 0..3 * pauses {
            bed.clock += pause;
            bed.poll_end(0);
        }
        let whys: Vec<Why> = bed.ends[0].taker.ended.iter().map(|(why, _)| *why).collect();
        assert!(whys.contains(&Why::Silent), "{whys:?}");
        assert!(whys.iter().all(|why| *why == Why::Silent), "{whys:?}");
    });
}

/// A training rank for which nobody waits would be given up.
#[test]
fn silence_of_a_rank_that_is_not_awaited_is_borne() {
    on_every_link(|mut bed| {
        for _ in 0..100 {
            bed.clock += SILENCE_MAX / 4;
            bed.poll_end(0);
        }
        assert_eq!(bed.ends[0].taker.ended, []);
    });
}

/// A neighbour would read other bytes than the sender's.
#[test]
fn memory_that_the_other_end_cannot_reach_is_refused() {
    on_every_link(|bed| {
        let [one, other] = &bed.ends;
        one.link.register(one.memory(8).region()).unwrap();
        let foreign = one.link.register(other.memory(8).region());
        assert_eq!(foreign.is_err(), one.link.memory().is_some());
    });
}

/// Direct access to memory must show the other end's bytes.
#[test]
fn memory_that_is_offered_is_the_other_ends_own() {
    on_every_link(|bed| {
        for (own, other) in [(0, 1), (1, 0)] {
            let Some(memory) = bed.ends[own].link.memory() else { continue };
            let theirs = bed.ends[other].memory(64);
            let seen = crate::memory::Region::new(memory, theirs.region().arena_offset(), 64).unwrap();
            theirs.region().as_bytes_mut().fill(7);
            assert!(seen.as_bytes().iter().all(|byte| *byte == 7));
            seen.as_bytes_mut().fill(9);
            assert!(theirs.region().as_bytes().iter().all(|byte| *byte == 9));
        }
    });
}

/// A rank that finishes first would cut off what others still need.
#[test]
fn what_was_handed_over_arrives_before_a_goodbye() {
    on_every_link(|mut bed| {
        bed.message(0, 0, 2_000_000, DType::F32, Land::Store, 0);
        bed.until("the post", |bed| bed.hands_over(1));
        bed.say_goodbye(0);
        assert!(bed.is_complete(0..1), "the message was cut off");
        bed.check(0);
        assert_eq!((bed.ends[1].taker.left, bed.ends[1].link.has_left()), (1, true));
        let [_, other] = bed.part();
        assert_eq!((other.left, other.ended), (1, vec![]));
    });
}

/// Ranks that end at the same time would wait for each other.
#[test]
fn both_ends_can_leave_at_once() {
    on_every_link(|mut bed| {
        bed.message(0, 0, MANY, DType::F32, Land::Store, 0);
        bed.message(1, 1, MANY, DType::F32, Land::Store, 0);
        bed.until("the messages", |bed| bed.is_complete(0..2));
        bed.part();
    });
}

/// Further frames of a rank that broke the protocol would be processed.
#[test]
fn what_the_owner_refuses_ends_the_link() {
    on_every_link(|mut bed| {
        bed.ends[1].taker.refuses = true;
        bed.message(0, 0, 10, DType::F32, Land::Store, 0);
        bed.until("the refusal", |bed| !bed.ends[1].taker.ended.is_empty());
        assert_eq!(bed.ends[1].taker.ended, [(Why::Violation, "broke the protocol: refused".to_owned())]);
        assert!(!bed.is_complete(0..1));
        // It can still be sent the reason.
        bed.ends[1].link.abort(Rank(0), Why::Violation, "refused");
        bed.until("the abort", |bed| bed.ends[0].taker.aborted.is_some());
    });
}

/// A post would lie unseen until something else happens.
#[test]
fn a_post_wakes_whoever_must_move_it() {
    on_every_link(|mut bed| {
        let first = match bed.ends[0].link.memory() {
            Some(_) => Post::Taken { program: 1, instance: 2, op: 3 },
            None => Post::Posted { program: 1, instance: 2, op: 3, tag: 0 },
        };
        bed.rest();
        bed.ends.iter().for_each(|end| end.bell.sleeping().set());
        bed.ends[0].link.post(first).unwrap();
        // One of the ends was woken, and its action wakes the other.
        let woken = bed.ends.iter().any(|end| !end.bell.sleeping().must_wake());
        assert!(woken, "nobody was woken");
        bed.until("the post", |bed| bed.ends[1].taker.posts == [3]);
    });
}
