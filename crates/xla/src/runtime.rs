//! What the runtime offers: errors and futures.

use crate::abi::{
    Api, CallFrame, Error, ErrorCreate, ErrorDestroy, Future, FutureArguments, FutureSetError, MAJOR, MINOR,
};
use std::ffi::{CString, c_int};
use std::mem::offset_of;
use std::ptr::null_mut;

/// The functions of a runtime; they may be called from any thread, as long as the process lives.
#[derive(Clone, Copy)]
pub struct Runtime(*const Api);

// SAFETY: the runtime's table of functions is constant and never freed, and its functions lock by themselves.
unsafe impl Send for Runtime {}

impl Runtime {
    /// Of a call.
    ///
    /// # Panics
    /// When it has no function for errors, which every version has: then nothing can be said to it.
    ///
    /// # Safety
    /// `frame` is of the runtime.
    pub unsafe fn of(frame: *const CallFrame) -> Self {
        // SAFETY: each field is read only where the sizes say that it is there.
        unsafe {
            assert!(
                (*frame).struct_size >= offset_of!(CallFrame, context),
                "XLA's call frame has no functions"
            );
            let api = (*frame).api;
            assert!(
                !api.is_null() && (*api).struct_size >= offset_of!(Api, error_get_message),
                "XLA offers no errors"
            );
            Self(api)
        }
    }

    pub fn version(self) -> (c_int, c_int) {
        // SAFETY: by construction; all versions begin alike.
        let version = unsafe { (*self.0).version };
        (version.major, version.minor)
    }

    /// Err: a sentence why this runtime cannot be used.
    pub fn check(self) -> Result<(), String> {
        let (major, minor) = self.version();
        if major != MAJOR {
            return Err(format!(
                "XLA's FFI is of version {major}.{minor}, and this version of Hocket knows {MAJOR}.x\nhint: a newer \
                 Hocket, or an older jaxlib"
            ));
        }
        // SAFETY: by construction.
        let bytes = unsafe { (*self.0).struct_size };
        if bytes < size_of::<Api>() {
            return Err(format!(
                "XLA's FFI is of version {major}.{minor}, and asynchronous results came with {MAJOR}.{MINOR}\nhint: a \
                 newer jaxlib"
            ));
        }
        Ok(())
    }

    /// An error of the runtime's, which its receiver owns.
    pub fn error(self, message: &str, code: c_int) -> *mut Error {
        let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
        let mut arguments = ErrorCreate {
            struct_size: size_of::<ErrorCreate>(),
            extension: null_mut(),
            message: message.as_ptr(),
            code,
        };
        // SAFETY: `of` has checked that the function is there; the runtime copies the message.
        unsafe { ((*self.0).error_create)(&raw mut arguments) }
    }

    /// A new future. Only after [`Self::check`], as all below.
    pub fn future(self) -> Result<*mut Future, *mut Error> {
        let mut arguments = FutureArguments {
            struct_size: size_of::<FutureArguments>(),
            extension: null_mut(),
            future: null_mut(),
        };
        // SAFETY: `check` has seen that the function is there.
        let error = unsafe { ((*self.0).future_create)(&raw mut arguments) };
        if error.is_null() { Ok(arguments.future) } else { Err(error) }
    }

    /// The future's result is there. The future is gone afterwards.
    ///
    /// # Safety
    /// `future` is of this runtime, and neither available nor failed.
    pub unsafe fn set_available(self, future: *mut Future) {
        let mut arguments =
            FutureArguments { struct_size: size_of::<FutureArguments>(), extension: null_mut(), future };
        // SAFETY: by the caller's contract.
        let error = unsafe { ((*self.0).future_set_available)(&raw mut arguments) };
        self.destroy(error);
    }

    /// There is no result. The future is gone afterwards.
    ///
    /// # Safety
    /// As [`Self::set_available`].
    pub unsafe fn set_error(self, future: *mut Future, message: &str, code: c_int) {
        let error = self.error(message, code);
        let mut arguments =
            FutureSetError { struct_size: size_of::<FutureSetError>(), extension: null_mut(), future, error };
        // SAFETY: by the caller's contract; the runtime takes the error.
        let error = unsafe { ((*self.0).future_set_error)(&raw mut arguments) };
        self.destroy(error);
    }

    /// The runtime refuses arguments only whose size it does not know, which `check` excludes; there is nobody to tell.
    fn destroy(self, error: *mut Error) {
        if !error.is_null() {
            let mut arguments =
                ErrorDestroy { struct_size: size_of::<ErrorDestroy>(), extension: null_mut(), error };
            // SAFETY: the error is the caller's, as every error that a function of the runtime returns.
            unsafe { ((*self.0).error_destroy)(&raw mut arguments) };
        }
    }
}
