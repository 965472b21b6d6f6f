//! The TensorFlow that the process has loaded.

use crate::functions::{Functions, Status};
use std::ffi::{CStr, CString, c_int};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The file that has the functions, as TensorFlow 2 names it.
const FILE: &CStr = c"libtensorflow_framework.so.2";

/// Of the process; set before anything is registered.
static LIBRARY: OnceLock<Library> = OnceLock::new();

const OK: c_int = 0;

/// Its functions, which may be called from any thread, as long as the process lives.
#[derive(Clone, Copy)]
pub struct Library(pub Functions);

/// The library of this process, for all that TensorFlow calls later. `version`: its own, for people. Err: a sentence why not.
pub fn load(version: &str) -> Result<&'static Library, String> {
    let found = find(version)?;
    Ok(LIBRARY.get_or_init(|| found))
}

fn find(version: &str) -> Result<Library, String> {
    // SAFETY: a file that is loaded is not loaded again; loading nothing runs nothing.
    let handle = unsafe { libc::dlopen(FILE.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if handle.is_null() {
        return Err(format!(
            "TensorFlow {version} has not loaded `{}`, which has the functions that Hocket calls\nhint: TensorFlow 2.21",
            FILE.to_string_lossy()
        ));
    }
    // SAFETY: the handle is never closed, so functions stay; TensorFlow's names have the signatures of its headers.
    let functions = unsafe { Functions::find(|name| libc::dlsym(handle, name.as_ptr())) };
    functions.map(Library).map_err(|name| missing(version, name))
}

/// The sentence about a version whose C interface lacks a function.
pub fn missing(version: &str, name: &CStr) -> String {
    let name = name.to_string_lossy();
    format!(
        "TensorFlow {version} has no function `{name}`, which Hocket's kernels call\nhint: TensorFlow 2.21"
    )
}

/// The library, in a function that TensorFlow calls.
///
/// # Panics
/// When nothing was registered: then nobody can call.
pub fn library() -> &'static Library {
    LIBRARY.get().expect("kernels are registered after the library is found")
}

/// A `TF_Status`, which goes when it is dropped.
pub struct Outcome<'a> {
    library: &'a Library,
    raw: NonNull<Status>,
}

impl Library {
    /// A new status, of no error.
    ///
    /// # Panics
    /// When there is no memory for it.
    pub fn outcome(&self) -> Outcome<'_> {
        // SAFETY: found by its name.
        let raw = unsafe { (self.0.new_status)() };
        Outcome { library: self, raw: NonNull::new(raw).expect("TensorFlow makes a status") }
    }

    pub fn error(&self, code: c_int, message: &str) -> Outcome<'_> {
        let outcome = self.outcome();
        let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the status is ours, and the message is copied.
        unsafe { (self.0.set_status)(outcome.raw.as_ptr(), code, message.as_ptr()) };
        outcome
    }
}

impl Outcome<'_> {
    pub fn raw(&self) -> *mut Status {
        self.raw.as_ptr()
    }

    pub fn check(&self) -> Result<(), (c_int, String)> {
        // SAFETY: the status is ours.
        let code = unsafe { (self.library.0.get_code)(self.raw.as_ptr()) };
        if code == OK {
            return Ok(());
        }
        // SAFETY: as above; the text is the status's, and ends with a zero.
        let text = unsafe { CStr::from_ptr((self.library.0.message)(self.raw.as_ptr())) };
        Err((code, text.to_string_lossy().into_owned()))
    }
}

impl Drop for Outcome<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has it any more.
        unsafe { (self.library.0.delete_status)(self.raw.as_ptr()) };
    }
}
