//! A tensor of TensorFlow's: a reference to memory that it counts.

use crate::functions::{Context, RawTensor};
use crate::library::Library;
use hocket_adapter::Loan;
use hocket_executor::Error;
use std::ffi::c_int;
use std::ptr::NonNull;

/// One reference, given back when it is dropped.
pub struct Tensor {
    library: &'static Library,
    raw: NonNull<RawTensor>,
}

// SAFETY: references are counted atomically, and nobody writes the memory of an input.
unsafe impl Send for Tensor {}

pub type Refused = (c_int, String);

impl Tensor {
    /// Input `at` of a kernel that runs.
    ///
    /// # Safety
    /// The kernel's context, in its call.
    pub unsafe fn input(
        library: &'static Library,
        context: *mut Context,
        at: c_int,
    ) -> Result<Self, Refused> {
        let outcome = library.outcome();
        let mut raw = std::ptr::null_mut();
        // SAFETY: by the caller's contract.
        unsafe { (library.0.input)(context, at, &raw mut raw, outcome.raw()) };
        outcome.check()?;
        Self::of(library, raw)
    }

    /// An output of this shape: in the memory of the input at its position if nobody else uses that, else in new memory.
    ///
    /// # Safety
    /// As [`Self::input`].
    pub unsafe fn output_like_input(
        library: &'static Library,
        context: *mut Context,
        at: c_int,
        dims: &[i64],
    ) -> Result<Self, Refused> {
        let outcome = library.outcome();
        let mut forwarded = -1;
        // SAFETY: by the caller's contract; pointers are to locals, and not kept.
        let raw = unsafe {
            (library.0.forward_or_allocate_output)(
                context,
                &raw const at,
                1,
                at,
                dims.as_ptr(),
                dims.len() as c_int,
                &raw mut forwarded,
                outcome.raw(),
            )
        };
        outcome.check()?;
        Self::of(library, raw)
    }

    /// Output 0, a scalar of that type and size.
    ///
    /// # Safety
    /// As [`Self::input`].
    pub unsafe fn scalar_output(
        library: &'static Library,
        context: *mut Context,
        dtype: c_int,
        bytes: usize,
    ) -> Result<Self, Refused> {
        let outcome = library.outcome();
        // SAFETY: by the caller's contract; a scalar has no dimensions to be read.
        let raw = unsafe {
            (library.0.allocate_output)(context, 0, dtype, std::ptr::null(), 0, bytes, outcome.raw())
        };
        outcome.check()?;
        Self::of(library, raw)
    }

    fn of(library: &'static Library, raw: *mut RawTensor) -> Result<Self, Refused> {
        let raw = NonNull::new(raw);
        raw.map(|raw| Self { library, raw })
            .ok_or_else(|| (hocket_adapter::INTERNAL, "TensorFlow has no such tensor".into()))
    }

    pub fn dims(&self) -> Vec<i64> {
        // SAFETY: the reference is ours.
        unsafe {
            let count = (self.library.0.tensor_dims)(self.raw.as_ptr());
            (0..count).map(|at| (self.library.0.tensor_dim)(self.raw.as_ptr(), at)).collect()
        }
    }

    /// Where it begins, and its bytes; without memory if it has none.
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        // SAFETY: as above.
        let (data, bytes) = unsafe {
            (
                (self.library.0.tensor_data)(self.raw.as_ptr()),
                (self.library.0.tensor_bytes)(self.raw.as_ptr()),
            )
        };
        match NonNull::new(data.cast()) {
            Some(data) => (data, bytes),
            None => (NonNull::dangling(), 0),
        }
    }

    /// The contents of an input, which stay as long as the reference: memory is used anew only by its last holder.
    pub fn bytes(&self) -> &[u8] {
        let (data, bytes) = self.memory();
        // SAFETY: so many bytes are there by TensorFlow's word, and nobody writes an input.
        unsafe { std::slice::from_raw_parts(data.as_ptr(), bytes) }
    }

    /// The number in an input that is a scalar of uint32.
    pub fn number(&self) -> Result<u32, Refused> {
        let bytes = self.bytes().try_into();
        bytes.map(u32::from_ne_bytes).map_err(|_| {
            (hocket_adapter::INTERNAL, "Hocket's kernel: the turn is no scalar of uint32".into())
        })
    }

    /// Writes an output that is a scalar of uint32.
    pub fn set_number(&self, number: u32) {
        let (data, bytes) = self.memory();
        assert_eq!(bytes, size_of::<u32>(), "as it was allocated");
        // SAFETY: as large, and an output is its kernel's to write.
        unsafe { data.as_ptr().cast::<u32>().write_unaligned(number) };
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and nobody uses it any more.
        unsafe { (self.library.0.delete_tensor)(self.raw.as_ptr()) };
    }
}

/// A gradient that came before its turn, and is copied then.
impl Loan for Tensor {
    fn operand(&self) -> &[u8] {
        self.bytes()
    }

    // That it failed, whoever takes its mean back hears.
    fn end(self: Box<Self>, _: Result<&[u8], &Error>) {}
}
