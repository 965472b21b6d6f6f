//! Engines whose rank says goodbye when its process ends, since the C library alone knows the exit code by then: Python's
//! own `atexit` functions are not told it.
//!
//! The functions of `on_exit` (glibc) run after Python's end, in the thread that ends the process. Elsewhere, ranks say
//! goodbye without a code.

use hocket_executor::Engine;
use std::sync::Arc;

/// Closes the engine but for its goodbye, which follows with the exit code as the process ends. `false`: that cannot be
/// arranged here, and nothing has happened.
pub fn close_at_exit(engine: &Arc<Engine>) -> bool {
    libc::close_at_exit(engine)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod libc {
    pub fn close_at_exit(_: &std::sync::Arc<hocket_executor::Engine>) -> bool {
        false
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod libc {
    use hocket_executor::Engine;
    use std::ffi::{c_int, c_void};
    use std::mem;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process;
    use std::ptr;
    use std::sync::{Arc, Mutex, PoisonError};

    /// Those that are closed, and the process in which they are: a forked child has nothing to say.
    static CLOSED: Mutex<(u32, Vec<Arc<Engine>>)> = Mutex::new((0, Vec::new()));

    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }

    pub fn close_at_exit(engine: &Arc<Engine>) -> bool {
        let mut closed = CLOSED.lock().unwrap_or_else(PoisonError::into_inner);
        if closed.0 != process::id() {
            // SAFETY: the function lives as long as the process, since extension modules are never unloaded, and takes no
            // argument.
            if unsafe { on_exit(say_goodbye, ptr::null_mut()) } != 0 {
                return false;
            }
            // Those of a parent are not ours to end.
            mem::forget(mem::replace(&mut *closed, (process::id(), Vec::new())));
        }
        closed.1.push(Arc::clone(engine));
        drop(closed);
        engine.close_until_exit();
        true
    }

    extern "C" fn say_goodbye(status: c_int, _: *mut c_void) {
        // A thread that holds it has been stopped in the middle of it: then the others see a connection that ends.
        let Ok(mut closed) = CLOSED.try_lock() else { return };
        if closed.0 != process::id() {
            return;
        }
        for engine in closed.1.drain(..) {
            // As a parent process sees it.
            let code = (status & 0xff) as u8;
            // The runtime has printed a panic; the process ends all the same.
            drop(catch_unwind(AssertUnwindSafe(|| engine.exit(code))));
        }
    }
}
