//! What each kernel moves, and the share of what `memcpy` moves in the same place:
//! `cargo run --release -p hocket-kernels --example bandwidth`.
//!
//! Bytes moved are those that a kernel must read and write. Kernel and `memcpy` take turns; medians are printed.

use hocket_kernels::{
    DType, ReduceOp, Source, cast, copy, first_non_finite, reduce, reduce_many, round, scale,
};
use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

/// Sizes of the larger operand: in the second-level cache, and far beyond the last.
const SIZES_BYTES: [usize; 2] = [256 << 10, 64 << 20];

/// Bytes that one measurement moves at least.
const TURN_BYTES: usize = 64 << 20;

const TURNS: usize = 31;

/// A small normal number in every float type; not zero, whose pages would all be the same one in the caches.
const FILL: u8 = 0x21;

struct Case {
    name: &'static str,
    /// Bytes of destination and source for each byte of the larger operand, in quarters.
    dst_quarters: usize,
    src_quarters: usize,
    /// Bytes moved for each byte of the larger operand, in quarters.
    moved_quarters: usize,
    run: fn(&mut [u8], &[u8]),
}

const CASES: &[Case] = &[
    case("memcpy", 4, 4, 8, |dst, src| dst.copy_from_slice(src)),
    case("copy", 4, 4, 8, |dst, src| copy(dst, src, src.len())),
    case("f32 += f32", 4, 4, 12, |dst, src| reduce(ReduceOp::Sum, DType::F32, dst, DType::F32, src)),
    case("f32 max= f32", 4, 4, 12, |dst, src| reduce(ReduceOp::Max, DType::F32, dst, DType::F32, src)),
    case("f32 += f16", 4, 2, 10, |dst, src| reduce(ReduceOp::Sum, DType::F32, dst, DType::F16, src)),
    case("f32 += bf16", 4, 2, 10, |dst, src| reduce(ReduceOp::Sum, DType::F32, dst, DType::BF16, src)),
    case("f16 += f16", 4, 4, 12, |dst, src| reduce(ReduceOp::Sum, DType::F16, dst, DType::F16, src)),
    case("bf16 += bf16", 4, 4, 12, |dst, src| reduce(ReduceOp::Sum, DType::BF16, dst, DType::BF16, src)),
    case("f64 += f64", 4, 4, 12, |dst, src| reduce(ReduceOp::Sum, DType::F64, dst, DType::F64, src)),
    case("i32 += i32", 4, 4, 12, |dst, src| reduce(ReduceOp::Sum, DType::I32, dst, DType::I32, src)),
    case("f32 += 4 × f32", 1, 4, 5, |dst, src| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| &src[i * src.len() / 4..(i + 1) * src.len() / 4]);
        reduce_many(ReduceOp::Sum, DType::F32, dst, &[a, b, c, d].map(Source::Bytes), 4 * src.len());
    }),
    case("f16 = f32", 2, 4, 6, |dst, src| cast(DType::F16, dst, DType::F32, src)),
    case("bf16 = f32", 2, 4, 6, |dst, src| cast(DType::BF16, dst, DType::F32, src)),
    case("f32 = f16", 4, 2, 6, |dst, src| cast(DType::F32, dst, DType::F16, src)),
    case("f32 = bf16", 4, 2, 6, |dst, src| cast(DType::F32, dst, DType::BF16, src)),
    case("f32 *= constant", 4, 0, 8, |dst, _| scale(DType::F32, dst, 0.999)),
    case("f32 to what f16 holds", 4, 0, 8, |dst, _| round(DType::F32, dst, DType::F16)),
    case("scan of f32", 0, 4, 4, |_, src| assert_eq!(black_box(first_non_finite(DType::F32, src)), None)),
    case("scan of f16", 0, 4, 4, |_, src| assert_eq!(black_box(first_non_finite(DType::F16, src)), None)),
];

const fn case(
    name: &'static str,
    dst_quarters: usize,
    src_quarters: usize,
    moved_quarters: usize,
    run: fn(&mut [u8], &[u8]),
) -> Case {
    Case { name, dst_quarters, src_quarters, moved_quarters, run }
}

fn main() -> io::Result<()> {
    for size_bytes in SIZES_BYTES {
        writeln!(io::stdout(), "operands of {} KiB", size_bytes >> 10)?;
        for case in CASES {
            let (gigabyte_per_s, share) = measure(case, size_bytes);
            writeln!(io::stdout(), "  {:<22} {gigabyte_per_s:7.1} GB/s  {share:5.2} of memcpy", case.name)?;
        }
    }
    Ok(())
}

/// Median rate, and the median of its ratios to `memcpy` measured next to it.
fn measure(case: &Case, size_bytes: usize) -> (f64, f64) {
    let mut dst = vec![FILL; size_bytes * case.dst_quarters / 4];
    let src = vec![FILL; size_bytes * case.src_quarters / 4];
    let (mut copy_dst, copy_src) = (vec![FILL; size_bytes], vec![FILL; size_bytes]);
    let turns = (TURN_BYTES / size_bytes).max(1);
    let mut rates = Vec::new();
    let mut shares = Vec::new();
    for _ in 0..TURNS {
        let own = rate(turns, size_bytes * case.moved_quarters / 4, || {
            (case.run)(black_box(&mut dst), black_box(&src));
        });
        let copy =
            rate(turns, 2 * size_bytes, || black_box(&mut copy_dst).copy_from_slice(black_box(&copy_src)));
        rates.push(own);
        shares.push(own / copy);
    }
    (median(rates), median(shares))
}

/// Gigabytes a second.
fn rate(turns: usize, moved_bytes: usize, mut work: impl FnMut()) -> f64 {
    work();
    let start = Instant::now();
    for _ in 0..turns {
        work();
    }
    (turns * moved_bytes) as f64 / start.elapsed().as_nanos() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
