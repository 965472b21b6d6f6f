//! The functions that TensorFlow calls when it runs our ops on a CPU.

use crate::functions::{Compute, Construction, Context, Create, Delete};
use crate::library::{Library, library};
use crate::ops::{BEGIN, GIVE, TAKE_BACK, gradients_of};
use crate::results::Results;
use crate::tensor::{Refused, Tensor};
use hocket_adapter::{EngineGroup, FAILED_PRECONDITION, Given, INTERNAL, NOT_DISTRIBUTED, begin, code, find};
use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

/// Element type of turns and tokens.
const UINT32: c_int = 22;
const UNIMPLEMENTED: c_int = 12;

/// What XLA looks for when it compiles a function.
const COMPILED: &CStr = c"XLA_CPU_JIT";
const NOT_COMPILED: &str = "hk.mean is in a function with jit_compile=True, and XLA inside of TensorFlow cannot call Hocket\nhint: \
                            jit_compile=False; functions that this one calls may be compiled";

/// A kernel of an op, in one graph.
struct Kernel {
    group: u64,
    leaf: usize,
}

/// Err: what TensorFlow says to one of them.
pub fn register(library: &Library) -> Result<(), String> {
    let kernels: [(&CStr, Create, Compute); 3] =
        [(BEGIN, create, begin_execution), (GIVE, create_with_leaf, give), (TAKE_BACK, create, take_back)];
    for (op, create, compute) in kernels {
        register_one(library, op, c"CPU", Some(create), compute, Some(delete))?;
        register_one(library, op, COMPILED, None, refuse, None)?;
    }
    Ok(())
}

fn register_one(
    library: &Library,
    op: &CStr,
    device: &CStr,
    create: Option<Create>,
    compute: Compute,
    delete: Option<Delete>,
) -> Result<(), String> {
    let outcome = library.outcome();
    // SAFETY: texts are copied, functions stay as long as the process; `register_kernel` takes the builder.
    unsafe {
        let builder = (library.0.new_kernel)(op.as_ptr(), device.as_ptr(), create, compute, delete);
        (library.0.register_kernel)(op.as_ptr(), builder, outcome.raw());
    }
    let said = |(_, what)| format!("TensorFlow refuses the kernel {}: {what}", op.to_string_lossy());
    outcome.check().map_err(said)
}

/// # Safety
/// TensorFlow calls it, as all below.
unsafe extern "C" fn create(construction: *mut Construction) -> *mut c_void {
    // SAFETY: by the caller's contract.
    unsafe { created(construction, false) }
}

unsafe extern "C" fn create_with_leaf(construction: *mut Construction) -> *mut c_void {
    // SAFETY: by the caller's contract.
    unsafe { created(construction, true) }
}

unsafe fn created(construction: *mut Construction, with_leaf: bool) -> *mut c_void {
    let library = library();
    // SAFETY: by the caller's contract.
    let attribute = |name: &CStr| unsafe {
        let outcome = library.outcome();
        let mut value = -1;
        (library.0.attribute)(construction, name.as_ptr(), &raw mut value, outcome.raw());
        outcome.check()?;
        u64::try_from(value)
            .map_err(|_| (INTERNAL, format!("Hocket's kernel: `{}` is {value}", name.to_string_lossy())))
    };
    let kernel = || -> Result<Kernel, Refused> {
        let leaf = if with_leaf { attribute(c"leaf")? as usize } else { 0 };
        Ok(Kernel { group: attribute(c"group")?, leaf })
    };
    match kernel() {
        Ok(kernel) => Box::into_raw(Box::new(kernel)).cast(),
        Err((code, what)) => {
            // SAFETY: by the caller's contract; the status is read, and stays ours.
            unsafe { (library.0.construction_failure)(construction, library.error(code, &what).raw()) };
            null_mut()
        }
    }
}

unsafe extern "C" fn delete(kernel: *mut c_void) {
    if !kernel.is_null() {
        // SAFETY: made by `created`, and TensorFlow deletes it once.
        drop(unsafe { Box::from_raw(kernel.cast::<Kernel>()) });
    }
}

unsafe extern "C" fn begin_execution(kernel: *mut c_void, context: *mut Context) {
    // SAFETY: by the caller's contract.
    unsafe { run(kernel, context, |library, kernel, context| begin_in(library, kernel, context)) }
}

unsafe extern "C" fn give(kernel: *mut c_void, context: *mut Context) {
    // SAFETY: by the caller's contract.
    unsafe { run(kernel, context, |library, kernel, context| give_in(library, kernel, context)) }
}

unsafe extern "C" fn take_back(kernel: *mut c_void, context: *mut Context) {
    // SAFETY: by the caller's contract.
    unsafe { run(kernel, context, |library, kernel, context| take_back_in(library, kernel, context)) }
}

unsafe extern "C" fn refuse(_: *mut c_void, context: *mut Context) {
    let library = library();
    // SAFETY: by the caller's contract.
    unsafe { (library.0.failure)(context, library.error(UNIMPLEMENTED, NOT_COMPILED).raw()) };
}

/// Tells TensorFlow of an error, or a panic.
unsafe fn run(
    kernel: *mut c_void,
    context: *mut Context,
    compute: impl FnOnce(&'static Library, &Kernel, *mut Context) -> Result<(), Refused>,
) {
    let library = library();
    // SAFETY: made by `created`; TensorFlow runs no kernel whose making failed, and deletes none that runs.
    let kernel = unsafe { &*kernel.cast::<Kernel>() };
    let outcome = catch_unwind(AssertUnwindSafe(|| compute(library, kernel, context)));
    let outcome =
        outcome.unwrap_or_else(|_| Err((INTERNAL, "Hocket panicked; standard error says where".into())));
    if let Err((code, what)) = outcome {
        // SAFETY: by the caller's contract; the status is read, and stays ours.
        unsafe { (library.0.failure)(context, library.error(code, &what).raw()) };
    }
}

fn open(kernel: &Kernel) -> Result<Arc<EngineGroup>, Refused> {
    find(kernel.group).ok_or_else(|| (FAILED_PRECONDITION, NOT_DISTRIBUTED.to_owned()))
}

unsafe fn begin_in(library: &'static Library, kernel: &Kernel, context: *mut Context) -> Result<(), Refused> {
    let turn = begin(kernel.group).map_err(|refusal| (refusal.code, refusal.message))?;
    // SAFETY: by the caller's contract.
    unsafe { Tensor::scalar_output(library, context, UINT32, size_of::<u32>()) }?.set_number(turn);
    Ok(())
}

/// Inputs: gradient, turn. Output: a token.
unsafe fn give_in(library: &'static Library, kernel: &Kernel, context: *mut Context) -> Result<(), Refused> {
    let group = open(kernel)?;
    // SAFETY: by the caller's contract.
    let (gradient, turn) =
        unsafe { (Tensor::input(library, context, 0)?, Tensor::input(library, context, 1)?.number()?) };
    // A second reference, should the gradient have to stay.
    // SAFETY: by the caller's contract.
    let lent = unsafe { Tensor::input(library, context, 0)? };
    let given = group.give(kernel.leaf, turn, gradient.bytes(), || Box::new(lent));
    match given {
        Ok(Given::Now | Given::Later) => {}
        Err(cause) => return Err((code(&cause), cause.to_string())),
    }
    // SAFETY: by the caller's contract.
    unsafe { Tensor::scalar_output(library, context, UINT32, size_of::<u32>()) }?.set_number(turn);
    Ok(())
}

/// Inputs: gradients, tokens, turn. Outputs: their means.
unsafe fn take_back_in(
    library: &'static Library,
    kernel: &Kernel,
    context: *mut Context,
) -> Result<(), Refused> {
    let group = open(kernel)?;
    // SAFETY: by the caller's contract.
    let inputs = unsafe { (library.0.inputs)(context) };
    // SAFETY: as above.
    let turn = unsafe { Tensor::input(library, context, inputs - 1) }?.number()?;
    let mut outputs = Vec::new();
    for at in 0..gradients_of(i64::from(inputs)) {
        // Without a reference of ours, the gradient's memory may be the output's.
        // SAFETY: as above.
        let dims = unsafe { Tensor::input(library, context, at) }?.dims();
        // SAFETY: as above.
        outputs.push(unsafe { Tensor::output_like_input(library, context, at, &dims) }?);
    }
    // Dropped before the outputs, whatever happens.
    let results = Results::default();
    group.wait_for_turn(turn).map_err(|cause| (code(&cause), cause.to_string()))?;
    for (leaf, output) in outputs.iter().enumerate() {
        let (memory, bytes) = output.memory();
        // SAFETY: the output is this kernel's until it returns.
        let slot = unsafe { results.slot(memory, bytes) };
        group.take_back(leaf, turn, Box::new(slot));
    }
    results.wait()
}
