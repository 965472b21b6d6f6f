//! What needs no TensorFlow: which functions are missed, and that a kernel waits for all of its results.

use crate::functions::Functions;
use crate::library::missing;
use crate::results::Results;
use hocket_adapter::Loan;
use hocket_executor::Error;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A function that is not there would be called.
#[test]
fn a_function_that_is_missing_is_named() {
    let known =
        |name: &std::ffi::CStr| if name == c"TF_Dim" { std::ptr::null_mut() } else { 8 as *mut c_void };
    // SAFETY: none of what is found is called.
    let found = unsafe { Functions::find(known) };
    let name = found.err().expect("one is missing");
    assert_eq!(
        missing("2.9.1", name),
        "TensorFlow 2.9.1 has no function `TF_Dim`, which Hocket's kernels call\nhint: TensorFlow 2.21"
    );
}

fn place(memory: &mut [u8]) -> (NonNull<u8>, usize) {
    (NonNull::new(memory.as_mut_ptr()).expect("memory"), memory.len())
}

/// TensorFlow would use a mean that is not there.
#[test]
fn a_kernel_waits_for_all_results() {
    let mut memory = [[0; 3], [0; 3]];
    let results = Results::default();
    let [first, second] = memory.each_mut().map(|each| place(each));
    // SAFETY: the memory outlives the results.
    let (first, second) = unsafe { (results.slot(first.0, first.1), results.slot(second.0, second.1)) };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            Box::new(first).end(Ok(&[1, 2, 3]));
            std::thread::sleep(Duration::from_millis(50));
            ended.store(true, Ordering::SeqCst);
            Box::new(second).end(Ok(&[4, 5, 6]));
        });
        assert_eq!(results.wait(), Ok(()));
        assert!(ended.load(Ordering::SeqCst), "it did not wait");
    });
    drop(results);
    assert_eq!(memory, [[1, 2, 3], [4, 5, 6]]);
}

/// A step would go on with gradients that are no means, or wait for ever.
#[test]
fn the_first_error_and_a_slot_that_is_dropped_end_the_wait() {
    let mut memory = [0; 2];
    let results = Results::default();
    let (data, bytes) = place(&mut memory);
    // SAFETY: as above; nobody writes.
    let slots = unsafe { [results.slot(data, bytes), results.slot(data, bytes), results.slot(data, bytes)] };
    let [first, second, third] = slots.map(Box::new);
    first.end(Err(&Error::Usage("not now".into())));
    second.end(Err(&Error::Usage("nor now".into())));
    drop(third);
    assert_eq!(results.wait(), Err((9, "not now".into())));

    let results = Results::default();
    // SAFETY: as above.
    drop(unsafe { results.slot(data, bytes) });
    assert_eq!(results.wait(), Err((13, "a result was dropped before it was there".into())));
}
