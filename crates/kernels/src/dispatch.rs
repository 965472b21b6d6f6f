//! Compiles one loop for several instruction sets and picks at run time.

/// Defines `fn $name` whose body is compiled for AVX-512, AVX2 and the baseline; the best that the machine has is called.
macro_rules! dispatched {
    ($(#[$doc:meta])* $vis:vis fn $name:ident ( $($arg:ident : $type:ty),* $(,)? ) $body:block) => {
        $(#[$doc])*
        $vis fn $name($($arg: $type),*) {
            #[inline(always)]
            fn body($($arg: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                fn avx512($($arg: $type),*) { body($($arg),*) }
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2($($arg: $type),*) { body($($arg),*) }
                if std::is_x86_feature_detected!("avx512bw")
                    && std::is_x86_feature_detected!("avx512dq")
                    && std::is_x86_feature_detected!("avx512vl")
                    && std::is_x86_feature_detected!("f16c")
                {
                    // SAFETY: the machine has every feature that the function was compiled for.
                    return unsafe { avx512($($arg),*) };
                }
                if std::is_x86_feature_detected!("avx2")
                    && std::is_x86_feature_detected!("fma")
                    && std::is_x86_feature_detected!("f16c")
                {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            body($($arg),*);
        }
    };
}

pub(crate) use dispatched;
