//! What TensorFlow knows of our ops before it runs them: inputs, outputs, attributes, shapes.

use crate::functions::{Infer, ShapeContext, Status};
use crate::library::{Library, library};
use std::ffi::{CStr, c_int};

/// Asks for the turn of an execution. Stateful: it is called in each.
pub const BEGIN: &CStr = c"HocketBegin";
/// Copies a gradient, as soon as it is there.
pub const GIVE: &CStr = c"HocketGive";
/// Waits for all means. Stateful: executed even if nobody uses them, since other ranks wait for this one.
pub const TAKE_BACK: &CStr = c"HocketTakeBack";

struct Op {
    name: &'static CStr,
    attributes: &'static [&'static CStr],
    inputs: &'static [&'static CStr],
    outputs: &'static [&'static CStr],
    stateful: bool,
    shapes: Infer,
}

const OPS: [Op; 3] = [
    Op {
        name: BEGIN,
        attributes: &[c"group: int"],
        inputs: &[],
        outputs: &[c"turn: uint32"],
        stateful: true,
        shapes: scalar,
    },
    Op {
        name: GIVE,
        attributes: &[c"T: {half, bfloat16, float, double}", c"group: int", c"leaf: int"],
        inputs: &[c"gradient: T", c"turn: uint32"],
        outputs: &[c"token: uint32"],
        stateful: false,
        shapes: scalar,
    },
    Op {
        name: TAKE_BACK,
        attributes: &[c"T: list({half, bfloat16, float, double}) >= 1", c"N: int >= 1", c"group: int"],
        inputs: &[c"gradients: T", c"tokens: N * uint32", c"turn: uint32"],
        outputs: &[c"means: T"],
        stateful: true,
        shapes: of_gradients,
    },
];

/// Err: what TensorFlow says to one of them.
pub fn register(library: &Library) -> Result<(), String> {
    let functions = &library.0;
    for op in &OPS {
        let outcome = library.outcome();
        // SAFETY: the texts live for ever and are copied; `register_op` takes the builder.
        unsafe {
            let builder = (functions.new_op)(op.name.as_ptr());
            for each in op.attributes {
                (functions.op_attribute)(builder, each.as_ptr());
            }
            for each in op.inputs {
                (functions.op_input)(builder, each.as_ptr());
            }
            for each in op.outputs {
                (functions.op_output)(builder, each.as_ptr());
            }
            (functions.op_stateful)(builder, op.stateful);
            (functions.op_shapes)(builder, op.shapes);
            (functions.register_op)(builder, outcome.raw());
        }
        outcome.check().map_err(|(_, what)| {
            format!("TensorFlow refuses the op {}: {what}", op.name.to_string_lossy())
        })?;
    }
    Ok(())
}

/// Of one output, which is a scalar.
///
/// # Safety
/// TensorFlow calls it.
unsafe extern "C" fn scalar(context: *mut ShapeContext, status: *mut Status) {
    let functions = &library().0;
    // SAFETY: context and status are TensorFlow's, for this call; the shape is ours to delete.
    unsafe {
        let shape = (functions.shape_scalar)(context);
        (functions.shape_output)(context, 0, shape, status);
        (functions.delete_shape)(shape);
    }
}

/// How many gradients these inputs begin with: as many tokens follow, and the turn.
pub fn gradients_of(inputs: i64) -> c_int {
    ((inputs - 1) / 2) as c_int
}

/// Each output has the shape of the input at the same position.
///
/// # Safety
/// As [`scalar`].
unsafe extern "C" fn of_gradients(context: *mut ShapeContext, status: *mut Status) {
    let functions = &library().0;
    // SAFETY: as above; the op has so many inputs and outputs by its definition.
    unsafe {
        let shape = (functions.new_shape)();
        for at in 0..gradients_of((functions.shape_inputs)(context)) {
            (functions.shape_input)(context, at, shape, status);
            if (functions.get_code)(status) != 0 {
                break;
            }
            (functions.shape_output)(context, at, shape, status);
        }
        (functions.delete_shape)(shape);
    }
}
