//! The vector instructions of this CPU, and how a kernel runs with them.
//!
//! A kernel is generic code that is always inlined; each function below that names CPU features compiles its own copy.

use crate::lanes::Lanes;
#[cfg(target_arch = "x86_64")]
use crate::x86::{Avx2, Avx512};
use std::sync::OnceLock;

/// A set of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What every CPU of the target has.
    Scalar,
    /// AVX2 with the f16 conversions.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with the byte, word and 256-bit forms.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Advanced SIMD, which every 64-bit ARM CPU has.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Level {
    /// Every level that this CPU has, the best last.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
            if avx2 {
                levels.push(Self::Avx2);
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                levels.push(Self::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        levels.push(Self::Neon);
        levels
    }
}

/// The level of kernels: the best that the CPU has.
pub fn level() -> Level {
    static BEST: OnceLock<Level> = OnceLock::new();
    #[cfg(test)]
    if let Some(forced) = FORCED.get() {
        return forced;
    }
    *BEST.get_or_init(|| Level::available().pop().unwrap_or(Level::Scalar))
}

#[cfg(test)]
thread_local! {
    /// The level to which a test pins this thread.
    pub static FORCED: std::cell::Cell<Option<Level>> = const { std::cell::Cell::new(None) };
}

/// Work that can be compiled for any level.
pub trait Kernel {
    /// The result; `()` for kernels that write.
    type Output;

    /// Does the work with vectors of type `L`. Must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The CPU has the features of `L`.
    unsafe fn run<L: Lanes>(self) -> Self::Output;
}

/// Runs `kernel` with the best available instructions.
pub fn run<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: `level` returns only what the CPU has.
    unsafe {
        match level() {
            Level::Scalar => kernel.run::<f32>(),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => run_avx2(kernel),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => run_avx512(kernel),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => kernel.run::<crate::neon::Neon>(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the features are this function's own.
    unsafe { kernel.run::<Avx2>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the features are this function's own.
    unsafe { kernel.run::<Avx512>() }
}

/// The operation on the elements at one position of a sweep.
pub trait Step {
    /// Does it to `L::COUNT` elements from `index` on. Must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The CPU has the features of `L`, and that many elements are there.
    unsafe fn at<L: Lanes>(&self, index: usize);
}

/// `step` at `0..elements`: whole vectors, four to a turn, and the rest one by one.
pub struct Sweep<S> {
    pub elements: usize,
    pub step: S,
}

impl<S: Step> Kernel for Sweep<S> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let mut index = 0;
        // SAFETY: the caller's CPU features; each access ends at or before `elements`.
        unsafe {
            while self.elements - index >= 4 * L::COUNT {
                for turn in 0..4 {
                    self.step.at::<L>(index + turn * L::COUNT);
                }
                index += 4 * L::COUNT;
            }
            while self.elements - index >= L::COUNT {
                self.step.at::<L>(index);
                index += L::COUNT;
            }
            while index < self.elements {
                self.step.at::<f32>(index);
                index += 1;
            }
        }
    }
}
