//! Finds NaN and infinity. Reads the source once and stops at the first block that has one.

use crate::dispatch::{self, Kernel};
use crate::dtype::{DType, count};
use crate::lanes::Lanes;
use std::marker::PhantomData;

/// Elements that are scanned without a branch.
const BLOCK_ELEMENTS: usize = 1024;

/// Position of the first element that is NaN or infinite; integers never are.
///
/// # Panics
/// When `src` holds part of an element.
pub fn first_non_finite(dtype: DType, src: &[u8]) -> Option<usize> {
    count(dtype, src.len());
    match dtype {
        DType::F64 => dispatch::run(Scan::<u64, 0x7ff0_0000_0000_0000> { src, bits: PhantomData }),
        DType::F32 => dispatch::run(Scan::<u32, 0x7f80_0000> { src, bits: PhantomData }),
        DType::F16 => dispatch::run(Scan::<u16, 0x7c00> { src, bits: PhantomData }),
        DType::BF16 => dispatch::run(Scan::<u16, 0x7f80> { src, bits: PhantomData }),
        DType::I64 | DType::I32 | DType::I8 | DType::U8 => None,
    }
}

/// The bits of a float as a number that grows with its magnitude.
trait Bits: Copy + Ord + Default + Into<u64> {
    fn without_sign(self) -> Self;
}

macro_rules! bits {
    ($unsigned:ident) => {
        impl Bits for $unsigned {
            #[inline(always)]
            fn without_sign(self) -> Self {
                self & ($unsigned::MAX >> 1)
            }
        }
    };
}

bits!(u64);
bits!(u32);
bits!(u16);

/// `INFINITY`: the bits of infinity, which every finite number is below.
struct Scan<'a, B, const INFINITY: u64> {
    src: &'a [u8],
    bits: PhantomData<B>,
}

impl<B: Bits, const INFINITY: u64> Kernel for Scan<'_, B, INFINITY> {
    type Output = Option<usize>;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> Option<usize> {
        let magnitude = |element: &[u8]| {
            // SAFETY: a chunk has the bytes of its type, all of whose bit patterns are numbers.
            unsafe { element.as_ptr().cast::<B>().read_unaligned() }.without_sign()
        };
        for (at, block) in self.src.chunks(BLOCK_ELEMENTS * size_of::<B>()).enumerate() {
            let elements = block.chunks_exact(size_of::<B>()).map(magnitude);
            if elements.clone().fold(B::default(), Ord::max).into() >= INFINITY {
                let within = elements.into_iter().position(|bits| bits.into() >= INFINITY);
                return within.map(|within| at * BLOCK_ELEMENTS + within);
            }
        }
        None
    }
}
