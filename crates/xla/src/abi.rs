//! Structs of XLA's FFI, version 0.3 (jaxlib 0.10.2); version 0.5 (jaxlib 0.12.0) only adds to them. XLA promises that
//! handlers of a version work for a year.

use std::ffi::{c_char, c_int, c_void};

/// The version that these mirrors were written for.
pub const MAJOR: c_int = 0;
pub const MINOR: c_int = 3;

pub const EXTENSION_METADATA: c_int = 1;
pub const STAGE_EXECUTE: c_int = 3;
pub const BUFFER: c_int = 1;
pub const SCALAR: c_int = 3;

pub const S32: c_int = 4;
pub const S64: c_int = 5;
pub const U32: c_int = 8;
pub const F16: c_int = 10;
pub const F32: c_int = 11;
pub const F64: c_int = 12;
pub const BF16: c_int = 16;

pub type Error = c_void;
pub type Future = c_void;

#[repr(C)]
pub struct Extension {
    pub struct_size: usize,
    pub kind: c_int,
    pub next: *mut Extension,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Version {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub major: c_int,
    pub minor: c_int,
}

#[repr(C)]
pub struct Metadata {
    pub struct_size: usize,
    pub version: Version,
    pub traits: u32,
    pub state_type: i64,
}

#[repr(C)]
pub struct MetadataExtension {
    pub base: Extension,
    pub metadata: *mut Metadata,
}

#[repr(C)]
pub struct Buffer {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub dtype: c_int,
    pub data: *mut c_void,
    pub rank: i64,
    pub dims: *mut i64,
}

#[repr(C)]
pub struct Values {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub size: i64,
    pub types: *mut c_int,
    pub entries: *mut *mut c_void,
}

#[repr(C)]
pub struct Span {
    pub start: *const c_char,
    pub len: usize,
}

#[repr(C)]
pub struct Scalar {
    pub dtype: c_int,
    pub value: *mut c_void,
}

#[repr(C)]
pub struct Attributes {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub size: i64,
    pub types: *mut c_int,
    pub names: *mut *mut Span,
    pub values: *mut *mut c_void,
}

#[repr(C)]
pub struct CallFrame {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub api: *const Api,
    pub context: *mut c_void,
    pub stage: c_int,
    pub operands: Values,
    pub results: Values,
    pub attributes: Attributes,
    /// The runtime's `struct_size` does not count it.
    pub future: *mut Future,
}

#[repr(C)]
pub struct ErrorCreate {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub message: *const c_char,
    pub code: c_int,
}

#[repr(C)]
pub struct ErrorDestroy {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub error: *mut Error,
}

/// Of `Future_Create`, which sets it, and `Future_SetAvailable`.
#[repr(C)]
pub struct FutureArguments {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub future: *mut Future,
}

#[repr(C)]
pub struct FutureSetError {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub future: *mut Future,
    pub error: *mut Error,
}

/// A function that is not called from here.
pub type Unused = *const c_void;

#[repr(C)]
pub struct Api {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub version: Version,
    pub internal: *const c_void,
    pub error_create: unsafe extern "C" fn(*mut ErrorCreate) -> *mut Error,
    pub error_get_message: Unused,
    pub error_destroy: unsafe extern "C" fn(*mut ErrorDestroy),
    pub handler_register: Unused,
    pub stream_get: Unused,
    pub type_register: Unused,
    pub context_get: Unused,
    pub state_set: Unused,
    pub state_get: Unused,
    pub memory_allocate: Unused,
    pub memory_free: Unused,
    pub pool_schedule: Unused,
    pub pool_threads: Unused,
    pub future_create: unsafe extern "C" fn(*mut FutureArguments) -> *mut Error,
    pub future_set_available: unsafe extern "C" fn(*mut FutureArguments) -> *mut Error,
    pub future_set_error: unsafe extern "C" fn(*mut FutureSetError) -> *mut Error,
}

// As a C compiler lays out those of version 0.3 on 64-bit Linux.
const _: () = assert!(
    size_of::<Version>() == 24
        && size_of::<Metadata>() == 48
        && size_of::<MetadataExtension>() == 32
        && size_of::<Buffer>() == 48
        && size_of::<Values>() == 40
        && size_of::<Attributes>() == 48
        && size_of::<CallFrame>() == 176
        && size_of::<Api>() == 48 + 16 * 8
);
