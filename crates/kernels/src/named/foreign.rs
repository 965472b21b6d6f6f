//! A user's kernel: a C function by its address, from `numba.cfunc` or a shared library.

use std::ffi::c_void;

/// Inputs and their lengths in bytes, outputs and theirs, constants.
type Signature = unsafe extern "C" fn(
    inputs: *const *const c_void,
    input_bytes: *const i64,
    outputs: *const *mut c_void,
    output_bytes: *const i64,
    constants: *const f64,
);

#[derive(Clone, Copy, Debug)]
pub struct Foreign(Signature);

impl Foreign {
    /// From an address that is not null.
    ///
    /// # Safety
    /// A function of this signature is at `address` as long as it may be called, from any thread; it accesses only the
    /// bytes passed to it.
    pub unsafe fn new(address: usize) -> Option<Self> {
        if address == 0 {
            return None;
        }
        // SAFETY: the caller's; pointers and addresses are of one size on all our targets.
        Some(Self(unsafe { std::mem::transmute::<usize, Signature>(address) }))
    }

    pub(super) fn call(self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], constants: &[f64]) {
        let input_bytes: Vec<i64> = inputs.iter().map(|input| input.len() as i64).collect();
        let output_bytes: Vec<i64> = outputs.iter().map(|output| output.len() as i64).collect();
        let inputs: Vec<*const c_void> = inputs.iter().map(|input| input.as_ptr().cast()).collect();
        let outputs: Vec<*mut c_void> = outputs.iter_mut().map(|output| output.as_mut_ptr().cast()).collect();
        // SAFETY: the function only accesses the bytes passed to it, which are valid and do not overlap: `new`'s
        // contract.
        unsafe {
            (self.0)(
                inputs.as_ptr(),
                input_bytes.as_ptr(),
                outputs.as_ptr(),
                output_bytes.as_ptr(),
                constants.as_ptr(),
            );
        }
    }
}
