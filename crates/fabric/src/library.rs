//! The library, opened at run time, and its functions by name and symbol version.

use crate::error::FabricError;
use crate::mirrors::{Fabric, FabricAttr, Info};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The name that versions 1 and 2 of the library share.
const NAME: &str = "libfabric.so.1";

/// The oldest library that knows the interface asked for: 1.17.
pub(crate) const API_VERSION: u32 = 1 << 16 | 0x11;

type GetInfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut Info);
type DupInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type OpenFabric = unsafe extern "C" fn(*mut FabricAttr, *mut *mut Fabric, *mut c_void) -> c_int;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;
type Version = unsafe extern "C" fn() -> u32;

/// The functions of a loaded library. It is never unloaded: its providers have threads of their own.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    pub(crate) get_info: GetInfo,
    pub(crate) free_info: FreeInfo,
    pub(crate) dup_info: DupInfo,
    pub(crate) open_fabric: OpenFabric,
    str_error: StrError,
    version: u32,
}

impl Library {
    /// The library of this machine, loaded at the first call.
    pub fn get() -> Result<Self, FabricError> {
        static LOADED: OnceLock<Result<Library, FabricError>> = OnceLock::new();
        LOADED.get_or_init(|| Self::open(NAME)).clone()
    }

    /// The library of that name or path. `Library`: it is not there, is too old, or is another one.
    pub fn open(name: &str) -> Result<Self, FabricError> {
        let c_name = CString::new(name)
            .map_err(|_| FabricError::Library(format!("{name:?} is no name of a library")))?;
        // SAFETY: the string ends with a zero byte. Initialisers of the library run, as for any library that is linked.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(FabricError::Library(format!("libfabric cannot be loaded: {}", dl_error())));
        }
        let find = |symbol: &CStr, version: &CStr| {
            // SAFETY: the handle is open, and the strings end with a zero byte.
            let found = unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) };
            if found.is_null() {
                let (symbol, version) = (symbol.to_string_lossy(), version.to_string_lossy());
                let what =
                    format!("{name} has no {symbol} of version {version}: it is no libfabric since 1.17");
                return Err(FabricError::Library(what));
            }
            Ok(found)
        };
        // SAFETY: a function of that name and version has the type that the headers declare, which `tests/layout.rs`
        // compares.
        let library = unsafe {
            use std::mem::transmute;
            let version = transmute::<*mut c_void, Version>(find(c"fi_version", c"FABRIC_1.0")?);
            Self {
                get_info: transmute::<*mut c_void, GetInfo>(find(c"fi_getinfo", c"FABRIC_1.3")?),
                free_info: transmute::<*mut c_void, FreeInfo>(find(c"fi_freeinfo", c"FABRIC_1.3")?),
                dup_info: transmute::<*mut c_void, DupInfo>(find(c"fi_dupinfo", c"FABRIC_1.3")?),
                open_fabric: transmute::<*mut c_void, OpenFabric>(find(c"fi_fabric", c"FABRIC_1.1")?),
                str_error: transmute::<*mut c_void, StrError>(find(c"fi_strerror", c"FABRIC_1.0")?),
                version: version(),
            }
        };
        if library.version < API_VERSION {
            let what = format!("{name} is libfabric {}; 1.17 is the oldest that fits", library.version());
            return Err(FabricError::Library(what));
        }
        Ok(library)
    }

    /// Its version, such as `1.17`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version >> 16, self.version & 0xffff)
    }

    /// The text of a positive error number.
    pub(crate) fn text(&self, code: i32) -> String {
        // SAFETY: any number is allowed; the string is static.
        unsafe { text_of((self.str_error)(code)) }
    }

    /// The error of a call that returned `returned`, if it is one.
    pub(crate) fn check(&self, call: &'static str, returned: c_int) -> Result<(), FabricError> {
        if returned >= 0 {
            return Ok(());
        }
        Err(FabricError::Call { call, code: -returned, text: self.text(-returned) })
    }
}

/// A string of the library, empty for a null pointer.
///
/// # Safety
/// The pointer is null or leads to a string that ends with a zero byte.
pub(crate) unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn dl_error() -> String {
    // SAFETY: returns null or a string that stays until the next call of this thread.
    unsafe { text_of(libc::dlerror()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A missing or other library would end the process instead of being named.
    #[test]
    fn what_is_no_libfabric_is_named() {
        let missing = Library::open("libno-such-fabric.so.9").unwrap_err().to_string();
        assert!(missing.contains("libno-such-fabric.so.9"), "{missing}");
        let other = Library::open("libc.so.6").unwrap_err().to_string();
        assert!(other.contains("libc.so.6 has no fi_version"), "{other}");
        assert!(Library::open("a\0b").is_err());
    }
}
