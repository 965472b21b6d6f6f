//! The binary form of programs' types: fields in order, variants after their number.

use super::Damaged;
use super::field::{Field, Reader};
use crate::{
    Algorithm, Buffer, BufferKind, Collective, Contract, DType, Kernel, KernelSpec, Node, Op, Program,
    RankProgram, Record, ReduceOp, Share, Slice, Source, Space,
};
use hocket_ids::{BufferId, KernelId, OpId, Rank, SourceId, Tag};

macro_rules! indices {
    ($($type:ident),*) => {$(
        impl Field for $type {
            fn write(&self, out: &mut Vec<u8>) {
                self.0.write(out);
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
                u32::read(from).map(Self)
            }
        }
    )*};
}

macro_rules! structs {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl Field for $type {
            fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.write(out);)*
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
                Ok(Self { $($field: Field::read(from)?),* })
            }
        }
    )*};
}

macro_rules! enums {
    ($($type:ident { $($number:literal $variant:ident { $($field:ident),* })* })*) => {$(
        impl Field for $type {
            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        out.push($number);
                        $($field.write(out);)*
                    })*
                }
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
                Ok(match from.byte()? {
                    $($number => Self::$variant { $($field: Field::read(from)?),* },)*
                    _ => return Err(from.damaged()),
                })
            }
        }
    )*};
}

/// Types with a list of their values: the position in the list.
macro_rules! listed {
    ($($type:ident),*) => {$(
        impl Field for $type {
            fn write(&self, out: &mut Vec<u8>) {
                let place = Self::ALL.iter().position(|each| each == self);
                out.push(place.map_or(u8::MAX, |place| place as u8));
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
                Self::ALL.get(from.byte()? as usize).copied().ok_or(from.damaged())
            }
        }
    )*};
}

indices!(BufferId, KernelId, OpId, Rank, SourceId, Tag);
listed!(DType, ReduceOp, Space);
structs! {
    Program { name, ranks, ensures, sources, kernels }
    RankProgram { buffers, nodes }
    Buffer { name, dtype, len, kind, space }
    Node { op, after, source }
    Slice { buffer, start, stop }
    Share { owner, start, stop }
    Source { file, line }
    KernelSpec { name, elementwise, updates, joins, parameters }
}
enums! {
    BufferKind { 0 Bound {} 1 Scratch {} 2 State {} 3 SharedState {} }
    Record { 0 NonFinite {} }
    Collective {
        0 AllReduce {}
        1 ReduceScatter {}
        2 AllGather {}
        3 Broadcast { root }
        4 Reduce { root }
        5 Gather { root }
        6 Scatter { root }
        7 AllToAll { dst }
    }
    Contract {
        0 AllReduce { buffer, group, op, scale }
        1 AllGather { buffer, group }
        2 Same { buffer, group }
        3 ToOwners { buffer, group, op, scale, shares }
        4 FromOwners { buffer, group, shares }
    }
    Op {
        0 Copy { src, dst }
        1 Cast { src, dst }
        2 Reduce { op, src, dst }
        3 Apply { kernel, dst }
        4 Send { src, wire, peer, tag, count }
        5 Recv { dst, wire, reduce, peer, tag, count }
        6 Record { what, src }
        7 Call { kernel, inputs, outputs }
        8 Collective { what, slice, group, op, scale, algorithm }
    }
}

impl Field for Kernel {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Scale(factor) => {
                out.push(0);
                factor.write(out);
            }
            Self::Round(dtype) => {
                out.push(1);
                dtype.write(out);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        match from.byte()? {
            0 => f64::read(from).map(Self::Scale),
            1 => DType::read(from).map(Self::Round),
            _ => Err(from.damaged()),
        }
    }
}

/// By name, so that a new one needs nothing here. A library's own name follows.
impl Field for Algorithm {
    fn write(&self, out: &mut Vec<u8>) {
        self.name().to_owned().write(out);
        match self {
            Self::Library { name } => name.write(out),
            _ => self.numbers().to_vec().write(out),
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let name = String::read(from)?;
        if name == (Self::Library { name: String::new() }).name() {
            return Ok(Self::Library { name: String::read(from)? });
        }
        Self::new(&name, Vec::read(from)?).map_err(|_| from.damaged())
    }
}
