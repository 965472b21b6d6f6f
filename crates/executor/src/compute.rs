//! Ops on local memory: everything that moves nothing between ranks.

use hocket_kernels as kernels;
use hocket_kernels::Function;
use hocket_trace::Kind;
use hocket_wire::memory::Region;

/// One op on local memory.
#[derive(Debug)]
pub enum Compute {
    Copy {
        dst: Region,
        src: Region,
        /// The element type, where the launch's factor is applied to what is copied.
        factor: Option<kernels::DType>,
    },
    Cast {
        dst: Region,
        dtype: kernels::DType,
        src: Region,
        src_dtype: kernels::DType,
    },
    Reduce {
        op: kernels::ReduceOp,
        dst: Region,
        dtype: kernels::DType,
        src: Region,
        src_dtype: kernels::DType,
    },
    Scale {
        dst: Region,
        dtype: kernels::DType,
        factor: f64,
    },
    Round {
        dst: Region,
        dtype: kernels::DType,
        to: kernels::DType,
    },
    NonFinite {
        src: Region,
        dtype: kernels::DType,
        first_element: usize,
    },
    Call(Call),
}

/// A call of a kernel of whole slices.
#[derive(Debug)]
pub struct Call {
    /// Its name, for error messages.
    pub name: String,
    /// The function.
    pub function: Function,
    /// In the op's order.
    pub inputs: Vec<Region>,
    /// In the op's order; no output overlaps another or an input.
    pub outputs: Vec<Region>,
    /// The kernel's own parameters.
    pub constants: Vec<f64>,
}

impl Compute {
    /// Executes the op; `Ok` holds the first element that is not finite, if the op looks for one. The program's bound
    /// buffers have `together_bytes`; `factor` is its launch's.
    pub fn run(&self, together_bytes: usize, factor: Option<f64>) -> Result<Option<usize>, String> {
        match self {
            Self::Copy { dst, src, factor: dtype } => match dtype.zip(factor) {
                None => dst.copy_from(src, together_bytes),
                Some((dtype, factor)) => copy_scaled(dst, src, dtype, factor),
            },
            Self::Cast { dst, dtype, src, src_dtype } => dst.cast_from(*dtype, *src_dtype, src.as_bytes()),
            Self::Reduce { op, dst, dtype, src, src_dtype } => {
                dst.reduce_from(*op, *dtype, *src_dtype, src.as_bytes());
            }
            Self::Scale { dst, dtype, factor } => kernels::scale(*dtype, dst.as_bytes_mut(), *factor),
            Self::Round { dst, dtype, to } => kernels::round(*dtype, dst.as_bytes_mut(), *to),
            Self::NonFinite { src, dtype, first_element } => {
                let found = kernels::first_non_finite(*dtype, src.as_bytes());
                return Ok(found.map(|element| first_element + element));
            }
            Self::Call(call) => {
                let inputs: Vec<&[u8]> = call.inputs.iter().map(Region::as_bytes).collect();
                let mut outputs: Vec<&mut [u8]> = call.outputs.iter().map(Region::as_bytes_mut).collect();
                let done = call.function.call(&inputs, &mut outputs, &call.constants);
                done.map_err(|what| format!("kernel `{}`: {what}", call.name))?;
            }
        }
        Ok(None)
    }

    /// Memory that it reads or writes.
    pub fn regions(&self) -> Vec<&Region> {
        match self {
            Self::Copy { dst, src, .. } | Self::Cast { dst, src, .. } | Self::Reduce { dst, src, .. } => {
                vec![dst, src]
            }
            Self::Scale { dst, .. } | Self::Round { dst, .. } | Self::NonFinite { src: dst, .. } => vec![dst],
            Self::Call(call) => call.inputs.iter().chain(&call.outputs).collect(),
        }
    }

    /// Its kind in the trace.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Copy { .. } => Kind::Copy,
            Self::Cast { .. } => Kind::Cast,
            Self::Reduce { .. } => Kind::Reduce,
            Self::Scale { .. } | Self::Round { .. } | Self::Call(_) => Kind::Apply,
            Self::NonFinite { .. } => Kind::Record,
        }
    }

    /// Bytes that it writes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Copy { dst, .. }
            | Self::Cast { dst, .. }
            | Self::Reduce { dst, .. }
            | Self::Scale { dst, .. }
            | Self::Round { dst, .. }
            | Self::NonFinite { src: dst, .. } => dst.len(),
            Self::Call(call) => call.outputs.iter().map(Region::len).sum(),
        }
    }
}

/// `dst = src · factor`, by parts that stay in a core's cache between the two.
fn copy_scaled(dst: &Region, src: &Region, dtype: kernels::DType, factor: f64) {
    const PART_BYTES: usize = 1 << 17;
    for start in (0..dst.len()).step_by(PART_BYTES) {
        let part = dst.sub(start, (dst.len() - start).min(PART_BYTES));
        part.copy_from(&src.sub(start, part.len()), PART_BYTES);
        kernels::scale(dtype, part.as_bytes_mut(), factor);
    }
}
