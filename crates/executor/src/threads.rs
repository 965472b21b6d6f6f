//! The threads of an epoch: one for I/O, and workers. The next epoch has threads of its own, to which the I/O thread's
//! ports are handed on.

use crate::core::Core;
use crate::guard::guarded;
use crate::io_thread::{Io, NAME, run};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

/// The threads of one epoch.
#[derive(Default)]
pub struct Threads {
    workers: Vec<JoinHandle<()>>,
    io: Option<JoinHandle<Option<Io>>>,
}

impl Threads {
    /// Starts the threads of `core`. The I/O thread waits for what it is to own, and ends if that is never
    /// sent. If one cannot start, those that did end.
    pub fn start(core: &Arc<Core>) -> io::Result<(Self, mpsc::Sender<Io>)> {
        Self::start_all(core).inspect_err(|_| core.closing.store(true, Ordering::Release))
    }

    fn start_all(core: &Arc<Core>) -> io::Result<(Self, mpsc::Sender<Io>)> {
        let (give, given) = mpsc::channel::<Io>();
        let of_thread = Arc::clone(core);
        let io =
            thread::Builder::new().name(NAME.into()).spawn(move || run(&of_thread, given.recv().ok()?))?;
        let mut threads = Self { workers: Vec::new(), io: Some(io) };
        for worker in 0..core.workers {
            let core = Arc::clone(core);
            let name = format!("hocket-work-{worker}");
            let thread = thread::Builder::new().name(name.clone());
            threads.workers.push(thread.spawn(move || {
                guarded(&core, &name, || core.work_until_closed());
            })?);
        }
        Ok((threads, give))
    }

    /// Waits for the end of the threads, which have been told; returns what the I/O thread hands on.
    pub fn join(&mut self) -> Option<Io> {
        // A completion callback may hold the last reference to the engine: then its thread ends by itself.
        let is_own = |thread: &thread::Thread| thread.id() == thread::current().id();
        let io = self.io.take().filter(|io| !is_own(io.thread()));
        // The runtime has printed a panic of that thread; the job failed with it.
        let handed_on = io.and_then(|io| io.join().ok()).flatten();
        for worker in self.workers.drain(..).filter(|worker| !is_own(worker.thread())) {
            drop(worker.join());
        }
        handed_on
    }
}
