//! Every level against the scalar definition, and the definition against independent ones.

use crate::dispatch::{FORCED, Level};
use crate::half_float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::{
    DType, Function, ReduceOp, Source, cast, copy, first_non_finite, reduce, reduce_many, round, scale,
};
use proptest::prelude::*;

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];
const INTEGERS: [DType; 4] = [DType::I64, DType::I32, DType::I8, DType::U8];
const OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max];
const BIT_OPS: [ReduceOp; 3] = [ReduceOp::BitAnd, ReduceOp::BitOr, ReduceOp::BitXor];

fn ops(dtype: DType) -> impl Iterator<Item = ReduceOp> {
    OPS.into_iter().chain(BIT_OPS.into_iter().filter(move |_| !dtype.is_float()))
}

/// More than the caches hold: the size that makes kernels stream past them.
const BEYOND_CACHES: usize = usize::MAX;

/// `work` on `dst` placed `shift` bytes past alignment, at one level.
fn at_level(level: Level, dst: &[u8], shift: usize, work: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut memory = vec![0xa5; shift + dst.len() + 64];
    memory[shift..shift + dst.len()].copy_from_slice(dst);
    FORCED.set(Some(level));
    work(&mut memory[shift..shift + dst.len()]);
    FORCED.set(None);
    assert!(
        memory[..shift].iter().chain(&memory[shift + dst.len()..]).all(|&byte| byte == 0xa5),
        "wrote beyond its slice"
    );
    memory[shift..shift + dst.len()].to_vec()
}

fn is_nan(dtype: DType, element: &[u8]) -> bool {
    match dtype {
        DType::F64 => f64::from_ne_bytes(element.try_into().unwrap()).is_nan(),
        DType::F32 => f32::from_ne_bytes(element.try_into().unwrap()).is_nan(),
        DType::F16 => half::f16::from_ne_bytes(element.try_into().unwrap()).is_nan(),
        DType::BF16 => half::bf16::from_ne_bytes(element.try_into().unwrap()).is_nan(),
        _ => false,
    }
}

/// Equal bits, or both NaN.
fn assert_same(dtype: DType, got: &[u8], want: &[u8], what: &str) {
    assert_eq!(got.len(), want.len());
    let pairs = got.chunks(dtype.bytes()).zip(want.chunks(dtype.bytes()));
    for (index, (got, want)) in pairs.enumerate() {
        let same = got == want || is_nan(dtype, got) && is_nan(dtype, want);
        assert!(same, "{what}: element {index} of {dtype:?} is {got:02x?} instead of {want:02x?}");
    }
}

/// Bytes that are often special numbers: zero, subnormal, infinite, NaN, halfway between two neighbours.
fn bytes(elements: usize, width: usize) -> impl Strategy<Value = Vec<u8>> {
    let special = prop::sample::select(vec![
        0_u64,
        1,
        0x8000,
        0x7c00,
        0xfc01,
        0x7f80,
        0x3c00_3c00,
        0x7f80_0000,
        0xff80_0001,
        0x7f7f_8000,
        0x0000_8000,
        0x3380_0000,
        0x3880_1000,
        0x477f_f000,
        0x477f_efff,
        0x3f80_1000,
        0x3f80_8000,
        0x3f81_8000,
        0x007f_ffff,
        0x7ff0_0000_0000_0000,
        0x7ff0_0000_0000_0001,
        0x3ff0_0200_0000_0001,
        0x3f0f_fc00_0000_0000,
        0x47ef_ffff_ffff_ffff,
        0x3690_0000_0000_0000,
        u64::MAX,
        1 << 63,
        1 << 31,
        1 << 15,
    ]);
    let element = prop_oneof![2 => any::<u64>(), 1 => special];
    prop::collection::vec(element, elements).prop_map(move |values| {
        values.iter().flat_map(|value| value.to_le_bytes()[..width].to_vec()).collect()
    })
}

fn levels() -> Vec<Level> {
    Level::available().split_off(1)
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..200_usize, 1 => 4000..5000_usize]
}

fn pair(types: &'static [DType]) -> impl Strategy<Value = (DType, DType, Vec<u8>, Vec<u8>, usize, usize)> {
    let types = || prop::sample::select(types);
    (types(), types(), lengths(), 0..9_usize, 0..9_usize).prop_flat_map(|(dst, src, elements, one, two)| {
        (
            Just(dst),
            Just(src),
            bytes(elements, dst.bytes()),
            bytes(elements, src.bytes()),
            Just(one),
            Just(two),
        )
    })
}

/// `bytes` placed `shift` bytes past alignment.
fn shifted(bytes: &[u8], shift: usize) -> Vec<u8> {
    let mut memory = vec![0; shift];
    memory.extend_from_slice(bytes);
    memory
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Broken: ranks with different CPUs would reduce the same gradients to different bits.
    #[test]
    fn reduce_is_the_same_at_every_level((dst_dtype, src_dtype, dst, src, one, two) in pair(&FLOATS)) {
        let src = shifted(&src, two);
        for op in OPS {
            let work = |dst: &mut [u8]| reduce(op, dst_dtype, dst, src_dtype, &src[two..]);
            let want = at_level(Level::Scalar, &dst, one, work);
            for level in levels() {
                let got = at_level(level, &dst, one, work);
                assert_same(dst_dtype, &got, &want, &format!("{op:?} of {src_dtype:?} at {level:?}"));
            }
        }
    }

    /// Broken: integer counters would differ between ranks with different CPUs.
    #[test]
    fn reduce_of_integers_is_the_same_at_every_level(
        (dtype, _, dst, _, one, two) in pair(&INTEGERS),
    ) {
        let src: Vec<u8> = dst.iter().rev().copied().collect();
        let src = shifted(&src, two);
        for op in ops(dtype) {
            let work = |dst: &mut [u8]| reduce(op, dtype, dst, dtype, &src[two..]);
            let want = at_level(Level::Scalar, &dst, one, work);
            for level in levels() {
                prop_assert_eq!(&at_level(level, &dst, one, work), &want);
            }
        }
    }

    /// Broken: a codec would send other bits from one CPU than from another.
    #[test]
    fn cast_is_the_same_at_every_level((dst_dtype, src_dtype, dst, src, one, two) in pair(&FLOATS)) {
        let src = shifted(&src, two);
        let work = |dst: &mut [u8]| cast(dst_dtype, dst, src_dtype, &src[two..]);
        let want = at_level(Level::Scalar, &dst, one, work);
        for level in levels() {
            let got = at_level(level, &dst, one, work);
            assert_same(dst_dtype, &got, &want, &format!("cast of {src_dtype:?} at {level:?}"));
        }
    }

    /// Broken: the sender's own copy would differ from what the codec sent, so replicas would drift apart.
    #[test]
    fn round_is_a_cast_there_and_back((dtype, to, dst, _, one, _) in pair(&FLOATS)) {
        let mut there = vec![0; dst.len() / dtype.bytes() * to.bytes()];
        let mut want = dst.clone();
        cast(to, &mut there, dtype, &dst);
        cast(dtype, &mut want, to, &there);
        for level in Level::available() {
            let got = at_level(level, &dst, one, |dst| round(dtype, dst, to));
            assert_same(dtype, &got, &want, &format!("round to {to:?} at {level:?}"));
        }
    }

    /// Broken: means would differ between ranks with different CPUs.
    #[test]
    fn scale_is_the_same_at_every_level((dtype, _, dst, _, one, _) in pair(&DType::ALL), factor in any::<f64>()) {
        let want = at_level(Level::Scalar, &dst, one, |dst| scale(dtype, dst, factor));
        for level in levels() {
            let got = at_level(level, &dst, one, |dst| scale(dtype, dst, factor));
            assert_same(dtype, &got, &want, &format!("scale at {level:?}"));
        }
    }

    /// Broken: a NaN gradient would be missed, or attributed to the wrong parameter.
    #[test]
    fn first_non_finite_finds_the_first(
        (dtype, elements) in (prop::sample::select(&FLOATS[..]), 1..3000_usize),
        place in any::<prop::sample::Index>(), shift in 0..9_usize, infinite: bool,
    ) {
        let one = |value: f64| {
            let mut element = vec![0; dtype.bytes()];
            cast(dtype, &mut element, DType::F64, &value.to_ne_bytes());
            element
        };
        let place = place.index(elements);
        let mut src = vec![0; shift];
        for index in 0..elements {
            src.extend(one(if index < place { -3.0e38 / 1.0e34 } else if infinite { f64::NEG_INFINITY } else { f64::NAN }));
        }
        for level in Level::available() {
            FORCED.set(Some(level));
            let found = first_non_finite(dtype, &src[shift..]);
            let none = first_non_finite(dtype, &src[shift..shift + place * dtype.bytes()]);
            FORCED.set(None);
            prop_assert_eq!((found, none), (Some(place), None));
        }
    }

    /// Broken: reducing several neighbours at once would give other bits than one after the other.
    #[test]
    fn reduce_many_is_a_chain_of_reduce(
        (dtype, elements) in (prop::sample::select(&DType::ALL[..]), lengths()),
        shifts in prop::collection::vec(0..9_usize, 1..6),
        own_place in prop::option::of(any::<prop::sample::Index>()),
        seed in bytes(1500, 8),
    ) {
        let len = elements * dtype.bytes();
        let operand = |number: usize| -> Vec<u8> { seed.iter().cycle().skip(number * 1009).take(len).copied().collect() };
        let memory: Vec<Vec<u8>> = shifts.iter().enumerate().map(|(at, &shift)| shifted(&operand(at), shift)).collect();
        let own = own_place.map(|place| place.index(shifts.len()));
        let sources: Vec<Source<'_>> = memory.iter().zip(&shifts).enumerate()
            .map(|(at, (bytes, &shift))| if own == Some(at) { Source::Dst } else { Source::Bytes(&bytes[shift..]) })
            .collect();
        let dst = operand(own.unwrap_or(0));
        for op in ops(dtype) {
            let mut want = operand(0);
            for other in 1..shifts.len() {
                reduce(op, dtype, &mut want, dtype, &operand(other));
            }
            for level in Level::available() {
                let got = at_level(level, &dst, shifts[0], |dst| reduce_many(op, dtype, dst, &sources, 0));
                assert_same(dtype, &got, &want, &format!("{op:?} of {} at {level:?}", shifts.len()));
            }
        }
    }

    /// Broken: error feedback would keep other gradients than were sent, or ranks with different CPUs would select others.
    #[test]
    fn top_k_is_a_stable_sort_by_magnitude(words in bytes(700, 4), elements in 1..700_usize, share in 0..=100_usize) {
        let values: Vec<u32> = words.chunks(4).take(elements).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        let k = elements * share / 100;
        let mut order: Vec<usize> = (0..elements).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(values[index] & 0x7fff_ffff));
        let mut want: Vec<usize> = order[..k].iter().copied().filter(|&index| values[index] & 0x7fff_ffff != 0).collect();
        want.sort_unstable();
        for level in Level::available() {
            let (mut kept, mut indices, mut count) = (vec![0_u32; k], vec![0_u32; k], [0_u64]);
            FORCED.set(Some(level));
            let outputs = &mut [as_bytes_mut(&mut kept), as_bytes_mut(&mut indices), as_bytes_mut(&mut count)];
            Function::builtin("top_k.f32").unwrap().call(&[as_bytes(&values)], outputs, &[]).unwrap();
            FORCED.set(None);
            let taken = count[0] as usize;
            prop_assert_eq!(taken, want.len());
            for (at, &index) in want.iter().enumerate() {
                prop_assert_eq!((indices[at] as usize, kept[at]), (index, values[index]), "at {:?}", level);
            }
        }
    }

    /// Broken: what one rank sends as int8 another would read as something else, or a NaN would be hidden.
    #[test]
    fn int8_blocks_are_those_of_the_formula(words in bytes(300, 4), narrow: bool, block in 1..80_usize) {
        assert_blocks(8, &words, narrow, block);
    }

    /// Broken: two codes of a byte would change places, or what one rank sends in 4 bits another would read as something else.
    #[test]
    fn int4_blocks_are_those_of_the_formula(words in bytes(300, 4), narrow: bool, half in 1..40_usize) {
        assert_blocks(4, &words, narrow, 2 * half);
    }
}

/// Codes of so many bits, scales and what is decoded from them are those of the formula at every level.
fn assert_blocks(bits: usize, words: &[u8], narrow: bool, block: usize) {
    let values: Vec<f32> = words
        .chunks(4)
        .map(|word| f32::from_ne_bytes(word.try_into().unwrap()))
        .map(|value| if narrow { (value.to_bits() % 2001) as f32 * 0.125 - 125.0 } else { value })
        .collect();
    // Steps of what is almost nothing are inexact: such codes may be beyond the others, as far as there are any.
    let (least, most) = if bits == 8 { (-128.0, 127.0_f32) } else { (-7.0, 7.0) };
    for level in Level::available() {
        let mut codes = vec![0_u8; (values.len() * bits).div_ceil(8)];
        let (mut scales, mut back) = (vec![0_f32; values.len().div_ceil(block)], vec![1.0_f32; values.len()]);
        FORCED.set(Some(level));
        let call = |name: &str, inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            let function = Function::builtin(&format!("{name}.int{bits}")).unwrap();
            function.call(inputs, outputs, &[block as f64]).unwrap();
        };
        call("quantise", &[as_bytes(&values)], &mut [&mut codes[..], as_bytes_mut(&mut scales)]);
        call("dequantise_add", &[&codes[..], as_bytes(&scales)], &mut [as_bytes_mut(&mut back)]);
        FORCED.set(None);
        for (at, &value) in values.iter().enumerate() {
            let of_block = &values[at / block * block..][..block.min(values.len() - at / block * block)];
            let largest = if of_block.iter().any(|value| value.is_nan()) {
                f32::NAN
            } else {
                of_block.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()))
            };
            let steps = if largest > 0.0 { most / largest } else { 0.0 };
            let scale = scales[at / block];
            assert!(scale.to_bits() == (largest / most).to_bits() || scale.is_nan() && largest.is_nan());
            let code = (value * steps).clamp(least, most).round_ties_even() as i8;
            let sent = (codes[at * bits / 8] >> (at * bits % 8)) << (8 - bits);
            assert_eq!(sent as i8 >> (8 - bits), code, "{value:e} at {level:?}");
            let decoded = 1.0 + f32::from(code) * scale;
            assert!(back[at].to_bits() == decoded.to_bits() || back[at].is_nan() && decoded.is_nan());
        }
    }
}

fn as_bytes<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: used with numbers, which have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

fn as_bytes_mut<T: Copy>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: used with numbers, which have no padding and all of whose bit patterns are values.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Broken: large buckets would arrive with bytes missing or misplaced, as their results are stored another way.
#[test]
fn results_past_the_caches_are_the_same() {
    for (dtype, elements) in
        [(DType::F32, 20_011), (DType::F16, 40_001), (DType::I8, 70_003), (DType::F64, 9001)]
    {
        let src: Vec<u8> = (0..=250).cycle().take(elements * dtype.bytes()).collect();
        let other: Vec<u8> = src.iter().map(|byte| byte.rotate_left(1)).collect();
        let sources = [Source::Bytes(&src), Source::Bytes(&other), Source::Bytes(&src)];
        for level in Level::available() {
            for shift in [0, 1, 4, 31, 56] {
                let run = |together: usize| {
                    let work = |dst: &mut [u8]| reduce_many(ReduceOp::Max, dtype, dst, &sources, together);
                    at_level(level, &vec![0; src.len()], shift, work)
                };
                assert!(run(BEYOND_CACHES) == run(0), "{dtype:?} at {level:?}, shifted by {shift}");
            }
        }
    }
}

/// Broken: a bucket that does not fit the caches would be rounded otherwise than its parts.
#[test]
fn a_large_cast_is_that_of_its_parts() {
    let src: Vec<u8> = (0..=250).cycle().take((24 << 20) + 12).collect();
    for shift in [0, 2, 3] {
        let (mut whole, mut parts) = (vec![0; shift + src.len() / 2], vec![0; src.len() / 2]);
        cast(DType::F16, &mut whole[shift..], DType::F32, &src);
        for (to, from) in parts.chunks_mut(1000).zip(src.chunks(2000)) {
            cast(DType::F16, to, DType::F32, from);
        }
        assert!(whole[shift..] == parts, "shifted by {shift}");
    }
}

/// Broken: gradients sent as f16 would be off for some values.
#[test]
fn every_f16_and_bf16_has_its_value() {
    for bits in 0..=u16::MAX {
        let same = |got: f32, want: f32| got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
        assert!(same(f16_to_f32(bits), half::f16::from_bits(bits).to_f32()), "f16 {bits:04x}");
        assert!(same(bf16_to_f32(bits), half::bf16::from_bits(bits).to_f32()), "bf16 {bits:04x}");
    }
}

/// Broken: gradients would be rounded away from the nearest f16 or bf16.
#[test]
fn narrowing_agrees_with_an_independent_implementation() {
    for step in 0..1_u32 << 22 {
        let value = f32::from_bits(step.wrapping_mul(1021));
        let (f16, bf16) = (half::f16::from_f32(value), half::bf16::from_f32(value));
        assert!(f32_to_f16(value) == f16.to_bits() || value.is_nan() && f16.is_nan(), "{value:e}");
        assert!(f32_to_bf16(value) == bf16.to_bits() || value.is_nan() && bf16.is_nan(), "{value:e}");
    }
}

/// Broken: an f64 just above the middle of two f16 would be rounded down, through an f32 that hides it.
#[test]
fn f64_is_rounded_once() {
    let (middle, above) = (1.0 + 2.0_f64.powi(-11), 1.0 + 2.0_f64.powi(-11) + 2.0_f64.powi(-40));
    for (value, want) in
        [(middle, 0x3c00_u16), (above, 0x3c01), (-above, 0xbc01), (1.0e300, 0x7c00), (1.0e-300, 0)]
    {
        let mut got = [0; 2];
        cast(DType::F16, &mut got, DType::F64, &value.to_ne_bytes());
        assert_eq!(u16::from_ne_bytes(got), want, "{value:e}");
    }
}

/// Broken: minimum and maximum would hide a NaN, or depend on which rank sends first.
#[test]
fn minimum_and_maximum_are_commutative_and_keep_nan() {
    let run = |op, one: f32, two: f32| {
        let mut dst = one.to_ne_bytes();
        reduce(op, DType::F32, &mut dst, DType::F32, &two.to_ne_bytes());
        f32::from_ne_bytes(dst)
    };
    for (one, two) in [(0.0, -0.0), (-0.0, 0.0)] {
        assert!(run(ReduceOp::Min, one, two).is_sign_negative());
        assert!(run(ReduceOp::Max, one, two).is_sign_positive());
    }
    for op in [ReduceOp::Min, ReduceOp::Max] {
        assert!(run(op, f32::NAN, 1.0).is_nan() && run(op, 1.0, f32::NAN).is_nan());
    }
    let all = [ReduceOp::Min, ReduceOp::Max, ReduceOp::Sum, ReduceOp::Product].map(|op| run(op, 1.5, 2.0));
    assert_eq!(all.map(f32::to_bits), [1.5_f32, 2.0, 3.5, 3.0].map(f32::to_bits));
}

/// Broken: buckets between ranks of one host would arrive with bytes missing or misplaced.
#[test]
fn copies_are_whole_at_any_length_and_alignment() {
    let src: Vec<u8> = (0..=250).cycle().take(2 << 20).collect();
    for (start, len) in [(0, 0), (1, 1), (3, 255), (5, 4097), (7, (1 << 20) + 13), (0, 1 << 20)] {
        for shift in [0, 1, 31] {
            let got = at_level(Level::available().pop().unwrap(), &vec![0; len], shift, |dst| {
                copy(dst, &src[start..start + len], BEYOND_CACHES);
            });
            assert!(got == src[start..start + len], "{len} bytes from {start} to {shift}");
        }
    }
}

/// Broken: a program error would corrupt memory instead of being reported.
#[test]
fn what_no_program_may_ask_for_is_refused() {
    let cases: [fn(); 6] = [
        || reduce(ReduceOp::Sum, DType::F32, &mut [0; 8], DType::F32, &[0; 4]),
        || cast(DType::F16, &mut [0; 8], DType::F32, &[0; 8]),
        || scale(DType::F32, &mut [0; 7], 1.0),
        || reduce(ReduceOp::BitOr, DType::F32, &mut [0; 8], DType::F32, &[0; 8]),
        || reduce_many(ReduceOp::Sum, DType::F32, &mut [0; 8], &[Source::Dst, Source::Bytes(&[0; 12])], 0),
        || reduce_many(ReduceOp::Sum, DType::F32, &mut [0; 8], &[], 0),
    ];
    for case in cases {
        assert!(std::panic::catch_unwind(case).is_err());
    }
}
