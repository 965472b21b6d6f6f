//! Native threads that panic: the job ends by name, instead of waiting for them.

use crate::core::Core;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the thread of that name does; `None`: it panicked, and the job has failed because of that. State is left as it was: nothing
/// but the job's end follows.
pub fn guarded<T>(core: &Core, thread: &str, act: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(value) => Some(value),
        Err(panic) => {
            core.fail_here(None, format_args!("its thread `{thread}` panicked: {}", panic_text(&*panic)));
            None
        }
    }
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Lasting;
    use crate::error::Error;
    use crate::failure::Who;
    use hocket_ids::Rank;
    use hocket_wire::bell::Bell;
    use hocket_wire::bell::reserved_bytes;
    use hocket_wire::memory::Arena;
    use hocket_wire::poll::Waker;
    use std::sync::Arc;

    /// All ranks would wait for a thread that has ended, until their time-outs, and blame this one for nothing.
    #[test]
    fn a_panic_ends_the_job_by_name() {
        let arena = Arena::new(reserved_bytes(1)).unwrap();
        let bell = Arc::new(Bell::new(arena.mapping(), Waker::new().unwrap()));
        let own = Who { rank: Rank(2), host: "b".into() };
        let core = Core::new(own, 1, Lasting { workers: 0, bell, recorder: None, elastic: false });
        assert_eq!(guarded(&core, "hocket-io", || 7), Some(7));
        assert!(core.failure().is_none());
        assert_eq!(guarded(&core, "hocket-io", || panic!("no program {}", 5)), None::<()>);
        let Some(Error::Peer(failure)) = core.failure() else { panic!("{:?}", core.failure()) };
        assert_eq!(failure.who.rank, Rank(2));
        assert_eq!(failure.what, "rank 2 on b: its thread `hocket-io` panicked: no program 5");
    }
}
