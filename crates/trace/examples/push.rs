//! Nanoseconds that a push costs its thread: `cargo run --release -p hocket-trace --example push`.

use hocket_trace::{Bounds, Record, Recorder, Wanted};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Records in a burst: as many as a rank makes in a few steps.
const BURST: u32 = 10_000;

fn main() -> io::Result<()> {
    let path = std::env::temp_dir().join(format!("hocket-push-{}", std::process::id()));
    let recorder = Recorder::create(&Wanted { path: path.clone(), bounds: Bounds::default() }, 0, 1)?;
    let mut push_ns = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        for op in 0..BURST {
            recorder.push(&Record { op, ..Record::default() });
        }
        push_ns.push(start.elapsed().as_nanos() as u32 / BURST);
        std::thread::sleep(Duration::from_millis(50));
    }
    recorder.finish();
    std::fs::remove_file(path)?;
    push_ns.sort_unstable();
    writeln!(io::stdout(), "push: median {} ns, slowest burst {} ns", push_ns[10], push_ns[19])
}
