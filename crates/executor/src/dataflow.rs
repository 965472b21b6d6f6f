//! The dataflow: when an instruction completes, its dependents may be computed, sent or announced.
//!
//! Any thread may complete an instruction.

use crate::compute::Compute;
use crate::core::{Core, OUTSIDE};
use crate::early::Go;
use crate::error::Error;
use crate::external::{External, Externals, Staged};
use crate::instruction::{Action, Instruction, Way};
use crate::loaded::{Loaded, NonFinite};
use crate::lock::lock;
use hocket_kernels as kernels;
use hocket_protocol::why::Why;
use hocket_trace::{Kind, Record, Recorder};
use hocket_wire::clock::now_ns;
use hocket_wire::link::{Message, Post, Receive};
use hocket_wire::memory::Region;
use hocket_wire::take::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// In place of an op: the work that comes before all of them, which is to multiply the bound memory with the launch's
/// factor.
const SCALING: u32 = u32::MAX;

/// How much of it is done at a time, so that more urgent work need not wait.
const SCALED_BYTES: usize = 1 << 20;

/// Limit of non-finite findings kept for the caller; further ones add no information.
const NON_FINITE_MAX: usize = 1024;

impl Core {
    /// An edge of an op; whether the rank is dead.
    #[cfg(test)]
    pub fn dies(&self) -> bool {
        if self.death.note_edge() {
            self.interrupt("dead");
        }
        self.death.has_come()
    }

    /// Starts a claimed launch, or what of it may go on.
    pub fn start(&self, loaded: &Arc<Loaded>, go: Go) {
        if self.is_interrupted() {
            return;
        }
        match go {
            Go::Whole if loaded.is_scaled() => self.enqueue(loaded, SCALING),
            Go::Whole | Go::Early => self.start_roots(loaded, go),
            Go::Gradient(_) | Go::Rest => {
                let now_ns = traced_now_ns(loaded);
                for &op in loaded.waiting_for(go) {
                    if loaded.meet(op) {
                        self.release(loaded, op, now_ns);
                    }
                }
            }
        }
    }

    fn start_roots(&self, loaded: &Arc<Loaded>, go: Go) {
        let roots = loaded.start(go);
        if loaded.instructions().is_empty() {
            self.finish_instance(loaded, loaded.instance());
        }
        let now_ns = traced_now_ns(loaded);
        for op in roots {
            self.release(loaded, op, now_ns);
        }
    }

    /// Where what runs is recorded, if it is.
    fn recorder_of(&self, loaded: &Loaded) -> Option<&Recorder> {
        self.recorder.as_deref().filter(|_| loaded.is_traced())
    }

    /// The dependencies of `op` are met: it may start.
    fn release(&self, loaded: &Arc<Loaded>, op: u32, now_ns: u64) {
        #[cfg(test)]
        if self.dies() {
            return;
        }
        let instance = loaded.instance();
        if loaded.is_traced() {
            loaded.op(op).note_ready(now_ns);
        }
        let instruction = &loaded.instructions()[op as usize];
        if let Err(what) = instruction.refusal() {
            return self.fail_op(loaded, op, what);
        }
        match &instruction.action {
            Action::Compute(_) => self.enqueue(loaded, op),
            Action::InPlace(own) => self.bring(loaded, op, own),
            Action::Library(slice, dst, _) => self.externals.push(External {
                program: loaded.number,
                op,
                slice: slice.clone(),
                dst: dst.clone(),
            }),
            Action::Stage(stage) => {
                let host = stage.host.clone();
                self.staged(stage.way).push(Staged { program: loaded.number, op, host });
            }
            Action::Send(send) => {
                let peer = self.peer(send.peer);
                if peer.link.memory().is_some() {
                    self.post(
                        peer,
                        Post::Ready {
                            program: loaded.number,
                            instance,
                            op: send.peer_op,
                            offset_bytes: send.src.arena_offset(),
                            len_bytes: send.src.len() as u64,
                        },
                    );
                } else if loaded.op(op).release(instance) {
                    self.send(loaded, op, instance);
                }
            }
            Action::Receive(receive) => {
                let peer = self.peer(receive.peer);
                if peer.link.memory().is_some() {
                    if loaded.op(op).release(instance) {
                        self.enqueue(loaded, op);
                    }
                } else {
                    loaded.op(op).post(instance);
                    let (program, peer_op) = (loaded.number, receive.peer_op);
                    let bytes = receive.wire_bytes() as u64;
                    self.invite(peer, Receive { program, instance, op, peer_op, bytes });
                }
            }
        }
    }

    /// Both sides of send `op` are ready.
    pub fn send(&self, loaded: &Arc<Loaded>, op: u32, instance: u32) {
        let Action::Send(send) = &loaded.instructions()[op as usize].action else {
            unreachable!("only sends pass this gate");
        };
        if loaded.is_traced() {
            loaded.op(op).note_start(now_ns());
        }
        let message = Message {
            priority: loaded.urgency(),
            cards: loaded.sending.cards,
            program: loaded.number,
            instance,
            op,
            peer_op: send.peer_op,
            region: send.region(),
            dtype: send.dtype,
            wire: send.wire,
        };
        self.push(self.peer(send.peer), message);
    }

    /// Runs the most urgent instruction, if there is one.
    pub fn work_once(&self) -> bool {
        let Some((program, op)) = self.next_work() else { return false };
        if let Some(loaded) = self.programs.get(program) {
            self.run(&loaded, op);
        }
        true
    }

    /// Runs instructions until the rank closes: the main loop of a worker thread.
    pub fn work_until_closed(&self) {
        while !self.closing.load(Ordering::Acquire)
            && !self.is_interrupted()
            && !self.holds.load(Ordering::Acquire)
        {
            if !self.work_once() {
                self.wait_for_work();
            }
        }
        self.note_quiet();
    }

    fn run(&self, loaded: &Arc<Loaded>, op: u32) {
        if op == SCALING {
            let done = loaded.scale_part(SCALED_BYTES);
            return if done { self.start_roots(loaded, Go::Whole) } else { self.enqueue(loaded, SCALING) };
        }
        if loaded.is_traced() {
            loaded.op(op).note_start(now_ns());
        }
        match &loaded.instructions()[op as usize].action {
            Action::Compute(compute) => {
                if let Err(what) = self.compute(loaded, compute) {
                    return self.fail_op(loaded, op, what);
                }
            }
            Action::Receive(receive) => {
                let instance = loaded.instance();
                let peer = self.peer(receive.peer);
                let memory = peer.link.memory().expect("receives of what is pushed are not queued as work");
                let bytes = receive.elements() * receive.peer_dtype.bytes();
                let Some(source) = Region::new(memory, loaded.op(op).offered(instance), bytes as u64) else {
                    return self.fail(peer.failed(Why::Violation, Some(loaded.location(Some(op))), OUTSIDE));
                };
                take(&receive.landing(), receive.peer_dtype, &source, loaded.bytes as usize);
                self.post(peer, Post::Taken { program: loaded.number, instance, op: receive.peer_op });
            }
            // Ends when all parts are done.
            Action::InPlace(own) => {
                if !self.reduce_part(loaded, op, own) {
                    return;
                }
            }
            Action::Send(_) | Action::Library(..) | Action::Stage(_) => {
                unreachable!("only work is queued as work")
            }
        }
        self.complete(loaded, op);
    }

    fn compute(&self, loaded: &Loaded, compute: &Compute) -> Result<(), String> {
        if let Some(element) = compute.run(loaded.bytes as usize, loaded.factor())? {
            let mut found = lock(&self.non_finite);
            if found.len() < NON_FINITE_MAX {
                found.push(NonFinite { program: loaded.number, instance: loaded.instance(), element });
            }
        }
        Ok(())
    }

    /// `op` of the running instance is done: releases its dependents.
    pub fn complete(&self, loaded: &Arc<Loaded>, op: u32) {
        #[cfg(test)]
        if self.dies() {
            return;
        }
        let instance = loaded.instance();
        let instruction = &loaded.instructions()[op as usize];
        let end_ns = traced_now_ns(loaded);
        for &next in &instruction.then {
            if loaded.meet(next) {
                self.release(loaded, next, end_ns);
            }
        }
        // After starting the dependents: nothing waits for a record.
        if let Some(recorder) = self.recorder_of(loaded) {
            recorder.push(&record(loaded, instance, op, instruction, end_ns));
        }
        if loaded.finish(op, instance) {
            self.finish_instance(loaded, instance);
        }
    }

    fn finish_instance(&self, loaded: &Loaded, instance: u32) {
        if let Some(recorder) = self.recorder_of(loaded) {
            let (ready_ns, start_ns) = loaded.launched_ns();
            recorder.push(&Record {
                ready_ns,
                start_ns,
                end_ns: now_ns(),
                bytes: loaded.bytes,
                program: loaded.number,
                instance,
                kind: Kind::Instance,
                ..Record::default()
            });
        }
        if loaded.complete(instance, now_ns) {
            // It was asked for while all peers were here.
            match self.gone(loaded) {
                Some(failure) => self.fail(failure),
                None => self.begin(loaded.number, Go::Whole),
            }
        }
        self.note_change();
        self.notify_completed(loaded.number, instance);
    }

    /// Copies that wait for whoever has the device's memory.
    pub fn staged(&self, way: Way) -> &Externals<Staged> {
        match way {
            Way::Down => &self.down,
            Way::Up => &self.up,
        }
    }

    /// A library has executed the collective.
    pub fn complete_external(&self, program: u32, op: u32) -> Result<(), Error> {
        self.complete_waiting(program, op, |action, _| matches!(action, Action::Library(..)))
    }

    /// The device's memory was copied.
    pub fn complete_staged(&self, program: u32, op: u32) -> Result<(), Error> {
        self.complete_waiting(program, op, |action, loaded| {
            let Action::Stage(stage) = action else { return false };
            if let (Way::Down, Some(factor)) = (stage.way, loaded.factor()) {
                kernels::scale(stage.dtype, stage.host.as_bytes_mut(), factor);
            }
            true
        })
    }

    /// Others have executed the op, if it is of their kind.
    fn complete_waiting(
        &self,
        program: u32,
        op: u32,
        is_theirs: impl FnOnce(&Action, &Loaded) -> bool,
    ) -> Result<(), Error> {
        if let Some(interrupted) = self.interruption() {
            return Err(interrupted);
        }
        let (loaded, at) = self.addressed(program, op).map_err(Error::Usage)?;
        if loaded.is_complete() || !is_theirs(&loaded.instructions()[at].action, &loaded) {
            let what = format!("op {op} of program {program} is none that others execute, or was executed");
            return Err(Error::Usage(what));
        }
        self.complete(&loaded, op);
        Ok(())
    }
}

fn record(loaded: &Loaded, instance: u32, op: u32, instruction: &Instruction, end_ns: u64) -> Record {
    let (ready_ns, start_ns) = loaded.op(op).times();
    Record {
        ready_ns,
        start_ns,
        end_ns,
        bytes: instruction.bytes() as u64,
        program: loaded.number,
        instance,
        op,
        peer: instruction.peer().map_or(u32::MAX, |peer| peer.0),
        kind: instruction.kind(),
    }
}

/// The time for records of what runs; reads no clock when none are written.
fn traced_now_ns(loaded: &Loaded) -> u64 {
    if loaded.is_traced() { now_ns() } else { 0 }
}
