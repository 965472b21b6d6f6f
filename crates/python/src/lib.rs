//! The extension module `hocket._native`: conversions only. No algorithm, no logging, no environment here.
//!
//! One file per concept. `scripts/native_stub.py` makes the module's stub from what is exported here: signatures, types and `///`.

mod algorithms;
mod artefact;
mod at_exit;
mod builder;
mod clock;
mod departed;
mod digest;
mod dlc;
mod engine;
mod exceptions;
mod findings;
mod group;
mod host;
mod kernels;
mod membership;
mod memory;
mod network;
mod notifier;
mod ops;
mod order;
mod owned;
mod peers;
mod plan;
mod program;
mod readiness;
mod sampler;
mod schedules;
mod simulate;
mod tls;
mod trace;
mod transports;
mod waits;

use pyo3::prelude::*;

/// The extension module. Rust decides, Python reads well: conversions only, the GIL released while anything waits.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::algorithms::{AlgorithmEntry, algorithms, count_last, count_messages, fitting_algorithms};
    #[pymodule_export]
    use crate::builder::Builder;
    #[pymodule_export]
    use crate::clock::{cache_line_ns, now_ns};
    #[pymodule_export]
    use crate::digest::digests;
    #[pymodule_export]
    use crate::dlc::dlc_columns;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::group::{Group, tensorflow_register, xla_handlers};
    #[pymodule_export]
    use crate::host::HostGroup;
    #[pymodule_export]
    use crate::kernels::{repeat_kernel, run_kernel};
    #[pymodule_export]
    use crate::membership::{
        Coordinator, Liveness, MemberAction, Participant, Shortage, evicted, read_journal,
    };
    #[pymodule_export]
    use crate::memory::{Memory, Window};
    #[pymodule_export]
    use crate::network::Network;
    #[pymodule_export]
    use crate::order::OrderProblem;
    #[pymodule_export]
    use crate::owned::{owned_messages, owned_parts, owned_program, verify_halves};
    #[pymodule_export]
    use crate::plan::{PlanCost, partition, solve_plan};
    #[pymodule_export]
    use crate::program::{PassOptions, Program, Proofs};
    #[pymodule_export]
    use crate::readiness::{LiveTurn, Readiness, ReadyHook};
    #[pymodule_export]
    use crate::sampler::{Draw, Sampler};
    #[pymodule_export]
    use crate::schedules::{
        algorithm_1, pack, schedule_faults, schedule_front, schedule_launches, schedule_slots,
        schedule_steady, staged_schedule,
    };
    #[pymodule_export]
    use crate::simulate::{SimulatedJob, SimulatedProgram, Simulation, simulate};
    #[pymodule_export]
    use crate::tls::Tls;
    #[pymodule_export]
    use crate::trace::{trace_ends, trace_kinds};
    #[pymodule_export]
    use crate::transports::transport_needs;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    /// The longest wait, in seconds; longer ones are taken for it.
    #[pymodule_export]
    const TIMEOUT_MAX_S: f64 = hocket_protocol::limits::TIMEOUT_MAX_S;
    /// Round trip in seconds from which the wire's connections tolerate losses if there are any.
    #[pymodule_export]
    const FAR_S: f64 = hocket_protocol::congestion::ROUND_TRIP_MIN.as_secs_f64();
    #[pymodule_export]
    const TCP_S_PER_BYTE: f64 = hocket_plan::TCP_S_PER_BYTE;
    #[pymodule_export]
    const REDUCE_S_PER_BYTE: f64 = hocket_plan::REDUCE_S_PER_BYTE;
    #[pymodule_export]
    const CAST_S_PER_BYTE: f64 = hocket_plan::CAST_S_PER_BYTE;
    #[pymodule_export]
    const COPY_S_PER_BYTE: f64 = hocket_plan::COPY_S_PER_BYTE;
    #[pymodule_export]
    const MESSAGE_S: f64 = hocket_plan::MESSAGE_S;
    #[pymodule_export]
    const BUCKET_S: f64 = hocket_plan::BUCKET_S;
    #[pymodule_export]
    const PIECE_BYTES: usize = hocket_network::PIECE_BYTES;
    #[pymodule_export]
    const PART_ELEMENTS_MIN: u64 = hocket_plan::PART_ELEMENTS_MIN;
    #[pymodule_export]
    const SPLIT_WORTH: f64 = hocket_plan::SPLIT_WORTH;
    /// Sizes of buckets that `solve_plan` begins with; None: the whole model.
    #[pymodule_export]
    const PLAN_BUCKET_BYTES: &[Option<u64>] = &hocket_plan::BUCKET_BYTES;
    /// Names of the builders of plans that may mix routes.
    #[pymodule_export]
    const PLAN_BUILDERS: &[&str] = &hocket_plan::BUILDERS;
    /// Ticks into which a step is cut for knapsacks.
    #[pymodule_export]
    const STEP_TICKS: u32 = hocket_plan::knapsack::STEP_TICKS;
    /// Links that a packing may have, at most.
    #[pymodule_export]
    const PACKED_LINKS_MAX: usize = hocket_plan::knapsack::LINKS_MAX;
    /// Limit of turns of one bucket that are open at the same time: its memory has as many copies.
    #[pymodule_export]
    const SCHEDULE_SLOTS_MAX: usize = hocket_schedule::SLOTS_MAX;
    /// Limit of a period's iterations.
    #[pymodule_export]
    const SCHEDULE_PERIOD_MAX: usize = hocket_schedule::PERIOD_MAX;
    /// Spellings of `operation` in DLC traces. Below `DLC_SETUP_FIRST`, position modulo 8 is push or pull (4), send or receive (2),
    /// of a worker or a server (1).
    #[pymodule_export]
    const DLC_OPERATIONS: &[&str] = &hocket_dlc::OPERATIONS;
    #[pymodule_export]
    const DLC_SETUP_FIRST: u8 = hocket_dlc::SETUP_FIRST;
    /// First bytes of a trace's record files.
    #[pymodule_export]
    const TRACE_MAGIC: &[u8] = &hocket_trace::MAGIC;
    #[pymodule_export]
    const TRACE_VERSION: u32 = hocket_trace::VERSION;
    /// Header of a record file, as `struct` describes it: magic, version, bytes of a record, rank, world, records dropped.
    #[pymodule_export]
    const TRACE_HEADER: &str = hocket_trace::HEADER;
    /// A record's fields in order: name, and type as `NumPy` describes it.
    #[pymodule_export]
    const TRACE_FIELDS: &[(&str, &str)] = &hocket_trace::FIELDS;
    #[pymodule_export]
    const TRACE_RECORD_BYTES: usize = hocket_trace::RECORD_BYTES;
    /// `peer` of a record that involves no other rank.
    #[pymodule_export]
    const TRACE_NO_PEER: u32 = hocket_trace::NO_PEER;
}
