//! What a call says, read only as far as the runtime's sizes reach.

use crate::abi::{
    Attributes, BF16, BUFFER, Buffer, CallFrame, EXTENSION_METADATA, F16, F32, F64, Metadata,
    MetadataExtension, S32, S64, SCALAR, STAGE_EXECUTE, Scalar, Span, U32, Values,
};
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::null;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Operands: gradient, turn. Result: a scalar of uint32, which is there when the gradient is copied.
    Give,
    /// Operands: turn, the results of all gradients' [`Kind::Give`], added up. Result: the mean.
    TakeBack,
}

pub enum Call {
    Describe(*mut Metadata),
    /// Nothing of us, before the execution.
    Prepare,
    /// To give a gradient, or take back a mean.
    Execute(Lent),
}

#[derive(Clone, Copy)]
pub struct Lent {
    pub group: u64,
    pub leaf: usize,
    pub turn: u32,
    /// Of [`Kind::Give`]; else there is none, of 0 bytes.
    pub gradient: *const u8,
    pub gradient_bytes: usize,
    pub result: *mut u8,
    pub result_bytes: usize,
}

impl Lent {
    /// The gradient's bytes.
    ///
    /// # Safety
    /// They are valid, and nobody writes them.
    pub unsafe fn gradient<'a>(&self) -> &'a [u8] {
        if self.gradient_bytes == 0 {
            return &[];
        }
        // SAFETY: by the caller's contract; `Call::read` has computed how many there are.
        unsafe { std::slice::from_raw_parts(self.gradient, self.gradient_bytes) }
    }
}

impl Call {
    /// Err: a sentence about what is not as it should be.
    ///
    /// # Safety
    /// `frame` is of the runtime, and lives.
    pub unsafe fn read(frame: *const CallFrame, kind: Kind) -> Result<Self, String> {
        // SAFETY: `Runtime::of` has seen that the frame begins so; pointers in it are valid or null by XLA's contract, and
        // every further field is behind a look at the size of its struct.
        unsafe {
            let extension = (*frame).extension;
            if !extension.is_null() && (*extension).kind == EXTENSION_METADATA {
                return describe(extension.cast());
            }
            expect("call frame", (*frame).struct_size, offset_of!(CallFrame, future))?;
            if (*frame).stage != STAGE_EXECUTE {
                return Ok(Self::Prepare);
            }
            let operands = &raw const (*frame).operands;
            let (turn, gradient) = match kind {
                Kind::Give => {
                    let [gradient, turn] = buffers::<2>("operands", operands)?;
                    (turn, ((*gradient).data.cast_const().cast(), size_of_gradient(gradient)?))
                }
                Kind::TakeBack => {
                    let [turn, _given] = buffers::<2>("operands", operands)?;
                    (turn, (null(), 0))
                }
            };
            let [result] = buffers::<1>("results", &raw const (*frame).results)?;
            if !is_number(turn) {
                return Err("the turn is no scalar of uint32".into());
            }
            let result_bytes = match kind {
                Kind::Give if is_number(result) => size_of::<u32>(),
                Kind::Give => return Err("the result is no scalar of uint32".into()),
                Kind::TakeBack => size_of_gradient(result)?,
            };
            let attributes = &raw const (*frame).attributes;
            Ok(Self::Execute(Lent {
                group: attribute(attributes, "group")?,
                leaf: attribute(attributes, "leaf")? as usize,
                turn: (*turn).data.cast::<u32>().read(),
                gradient: gradient.0,
                gradient_bytes: gradient.1,
                result: (*result).data.cast(),
                result_bytes,
            }))
        }
    }
}

fn expect(what: &str, bytes: usize, at_least: usize) -> Result<(), String> {
    if bytes >= at_least {
        Ok(())
    } else {
        Err(format!("XLA's {what} has {bytes} bytes, {at_least} at least were expected"))
    }
}

/// # Safety
/// As [`Call::read`].
unsafe fn describe(extension: *const MetadataExtension) -> Result<Call, String> {
    // SAFETY: by the caller's contract.
    unsafe {
        expect("metadata extension", (*extension).base.struct_size, size_of::<MetadataExtension>())?;
        let metadata = (*extension).metadata;
        expect("metadata", (*metadata).struct_size, offset_of!(Metadata, traits) + size_of::<u32>())?;
        Ok(Call::Describe(metadata))
    }
}

/// # Safety
/// As [`Call::read`].
unsafe fn buffers<const N: usize>(what: &str, values: *const Values) -> Result<[*const Buffer; N], String> {
    // SAFETY: by the caller's contract; the runtime has as many types and values as it says.
    unsafe {
        expect(what, (*values).struct_size, size_of::<Values>())?;
        if (*values).size != N as i64 {
            return Err(format!("{} {what} instead of {N}", (*values).size));
        }
        let mut found = [std::ptr::null(); N];
        for (at, into) in found.iter_mut().enumerate() {
            if *(*values).types.add(at) != BUFFER {
                return Err(format!("{what} that are no buffers"));
            }
            let buffer: *const Buffer = (*(*values).entries.add(at)).cast();
            expect("buffer", (*buffer).struct_size, size_of::<Buffer>())?;
            *into = buffer;
        }
        Ok(found)
    }
}

/// Whether it is a scalar of uint32.
///
/// # Safety
/// `buffer` is of the runtime, as large as [`Buffer`].
unsafe fn is_number(buffer: *const Buffer) -> bool {
    // SAFETY: by the caller's contract.
    unsafe { (*buffer).dtype == U32 && (*buffer).rank == 0 && !(*buffer).data.is_null() }
}

/// # Safety
/// As [`is_number`].
unsafe fn size_of_gradient(buffer: *const Buffer) -> Result<usize, String> {
    // SAFETY: by the caller's contract; there are as many dimensions as the rank says.
    unsafe {
        let item = match (*buffer).dtype {
            F64 => 8,
            F32 => 4,
            F16 | BF16 => 2,
            other => return Err(format!("elements of XLA's type {other}: known are f64, f32, f16 and bf16")),
        };
        let rank = usize::try_from((*buffer).rank).map_err(|_| "a buffer of negative rank")?;
        let mut bytes: usize = item;
        for at in 0..rank {
            let dim = usize::try_from(*(*buffer).dims.add(at)).ok();
            let larger = dim.and_then(|dim| bytes.checked_mul(dim));
            bytes = larger.ok_or("a buffer larger than memory")?;
        }
        if bytes > 0 && (*buffer).data.is_null() {
            return Err("an operand or result has no memory".into());
        }
        Ok(bytes)
    }
}

/// # Safety
/// As [`Call::read`].
unsafe fn attribute(attributes: *const Attributes, name: &str) -> Result<u64, String> {
    // SAFETY: by the caller's contract; there are as many of each as the runtime says.
    unsafe {
        expect("attributes", (*attributes).struct_size, size_of::<Attributes>())?;
        for at in 0..usize::try_from((*attributes).size).unwrap_or_default() {
            let span: *const Span = *(*attributes).names.add(at);
            let found = std::slice::from_raw_parts((*span).start.cast::<u8>(), (*span).len);
            if found == name.as_bytes() {
                return scalar(name, *(*attributes).types.add(at), *(*attributes).values.add(at));
            }
        }
    }
    Err(format!("there is no attribute `{name}`"))
}

/// # Safety
/// `value` is what the runtime has for an attribute of this kind.
unsafe fn scalar(name: &str, kind: c_int, value: *const c_void) -> Result<u64, String> {
    if kind != SCALAR {
        return Err(format!("attribute `{name}` is no scalar"));
    }
    let value: *const Scalar = value.cast();
    // SAFETY: by the caller's contract; a scalar has a value of its type.
    let number = unsafe {
        match (*value).dtype {
            S64 => (*value).value.cast::<i64>().read_unaligned(),
            S32 => i64::from((*value).value.cast::<i32>().read_unaligned()),
            other => return Err(format!("attribute `{name}` is of XLA's type {other}")),
        }
    };
    u64::try_from(number).map_err(|_| format!("attribute `{name}` is negative"))
}
