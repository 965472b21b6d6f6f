//! Epochs of members on every link: what belongs to an epoch that has ended reaches nobody, and nothing of the next one
//! is lost.

use super::bed::{Bed, FIRST};
use super::{MANY, on_elastic_links};
use crate::conformance::pairs::shared_memory;
use crate::life::{Life, Lifetime};
use crate::link::{Land, Post};
use hocket_kernels::{DType, ReduceOp};
use hocket_protocol::why::Why;

const SUM: Land = Land::Reduce { op: ReduceOp::Sum, dtype: DType::F32, wire: DType::F32 };

/// A sum of an aborted step would land in the step that is done again, or its bytes over restored gradients.
#[test]
fn nothing_of_an_ended_epoch_lands_or_is_said_to_have_left() {
    for land in [Land::Store, SUM] {
        on_elastic_links(|mut bed| {
            for op in 0..4 {
                bed.message(0, op, MANY, DType::F32, land, 0);
            }
            bed.until("the first bytes", |bed| {
                bed.ends[1].taker.landed > 0 || bed.ends[1].taker.is_complete(0)
            });
            bed.ends[1].port.stop();
            let before: Vec<Vec<u8>> = (0..4).map(|op| bed.bytes_of(op)).collect();
            // The sender has not heard of it yet.
            bed.rest();
            bed.ends[0].port.stop();
            let sent = bed.ends[0].taker.sent.clone();
            bed.ends[1].port.enter(FIRST + 1).unwrap();
            bed.rest();
            bed.ends[0].port.enter(FIRST + 1).unwrap();
            bed.message(0, 4, MANY, DType::F32, land, 0);
            bed.message(1, 5, MANY, DType::F32, land, 0);
            bed.until("the messages of the new epoch", |bed| bed.is_complete(4..6));
            bed.rest();
            bed.check(4);
            bed.check(5);
            for (op, before) in (0..4).zip(before) {
                assert!(bed.bytes_of(op) == before, "message {op} of an ended epoch landed");
            }
            let old: Vec<u32> = bed.ends[0].taker.sent.iter().copied().filter(|op| *op < 4).collect();
            assert_eq!(old, sent);
            assert!(bed.ends.iter().all(|end| end.taker.ended.is_empty()));
        });
    }
}

/// An ended epoch's sender would go on sending for nobody, while the new epoch waits behind it.
#[test]
fn an_aborted_message_ends_with_its_frame() {
    on_elastic_links(|mut bed| {
        if bed.ends[0].link.memory().is_some() {
            return;
        }
        bed.message(0, 0, 8_000_000, DType::F32, Land::Store, 0);
        bed.until("the first bytes", |bed| bed.ends[1].taker.landed > 0);
        bed.ends[0].port.stop();
        bed.rest();
        let landed = bed.ends[1].taker.landed;
        assert!(landed < 32_000_000 / 2, "{landed} bytes landed");
        assert!(bed.ends[0].taker.sent.is_empty() && bed.ends[0].port.is_idle());
    });
}

/// The step would hang: nobody announces anything twice.
#[test]
fn posts_of_a_faster_member_wait_for_the_epoch() {
    on_elastic_links(|mut bed| {
        bed.ends.iter_mut().for_each(|end| end.port.stop());
        bed.ends[1].port.enter(FIRST + 1).unwrap();
        // End 1 is the one that posts.
        let from = usize::from(bed.ends[0].link.memory().is_some());
        bed.message(from, 0, MANY, DType::F32, Land::Store, 0);
        bed.rest();
        assert!(!bed.is_complete(0..1) && bed.ends[0].taker.handed_over == 0);
        bed.ends[0].port.enter(FIRST + 1).unwrap();
        assert!(!bed.ends[0].port.is_idle(), "sleeps on what has come already");
        bed.until("the message", |bed| bed.is_complete(0..1));
        bed.check(0);
    });
}

/// A member would be given up for its silence while it waits for a decision.
#[test]
fn signs_of_life_and_last_words_pass_between_epochs() {
    on_elastic_links(|mut bed| {
        bed.ends.iter_mut().for_each(|end| end.port.stop());
        bed.ends[0].taker.awaited = true;
        let pause = bed.ends[0].port.pause_max();
        for _ in 0..100 {
            bed.clock += pause;
            bed.rest();
        }
        assert_eq!(bed.ends[0].taker.ended, []);
        bed.ends[1].link.abort(hocket_ids::Rank(1), Why::GaveUp, "out of memory");
        bed.until("the abort", |bed| bed.ends[0].taker.aborted.is_some());
        bed.say_goodbye(1);
    });
}

/// Whoever replays an epoch could let old data in.
#[test]
fn an_epoch_that_has_begun_does_not_begin_again() {
    on_elastic_links(|mut bed| {
        for _ in 0..2 {
            bed.ends[0].port.enter(FIRST + 1).unwrap();
        }
        bed.until("the refusal", |bed| !bed.ends[1].taker.ended.is_empty());
        assert_eq!(bed.ends[1].taker.ended[0].0, Why::Violation);
    });
}

/// A neighbour that is killed would be missed for as long as a child of it holds its connections open.
#[test]
fn the_end_of_a_neighbours_process_ends_the_link() {
    let lives = [0, 1].map(|_| Life::new(Lifetime::Engine).unwrap());
    let mut bed = Bed::new(shared_memory(lives.each_ref().map(Some)));
    let [_own, theirs] = lives;
    bed.ends[1].link.post(Post::Taken { program: 1, instance: 2, op: 3 }).unwrap();
    drop(theirs);
    bed.until("the end", |bed| !bed.ends[0].taker.ended.is_empty());
    assert_eq!(bed.ends[0].taker.posts, [3], "its last post was lost");
    bed.rest();
    assert_eq!(bed.ends[0].taker.ended.len(), 1);
    assert_eq!(bed.ends[0].taker.ended[0].0, Why::Lost);
    assert_eq!(bed.ends[1].taker.ended, []);
}
