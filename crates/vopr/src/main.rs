//! `hocket-vopr --seeds FROM TO [--bug NAME]`: runs seeds until one fails. `hocket-vopr --replay SEED [--bug NAME]`: prints
//! everything that happens in one.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is its output")]

use hocket_protocol::planted::Bug;
use hocket_vopr::run;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (words, bug) = match words.as_slice() {
        [rest @ .., "--bug", name] => match Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == *name) {
            Some(bug) => (rest, Some(bug)),
            None => return usage(&format!("no bug is named {name}; there are {:?}", Bug::ALL)),
        },
        all => (all, None),
    };
    match *words {
        ["--replay", seed] => {
            seed.parse().map_or_else(|_| usage("SEED is a number"), |seed| replay(seed, bug))
        }
        ["--seeds", from, to] => match (from.parse(), to.parse()) {
            (Ok(from), Ok(to)) => seeds(from, to, bug),
            _ => usage("FROM and TO are numbers"),
        },
        _ => usage("give --seeds FROM TO or --replay SEED"),
    }
}

fn usage(what: &str) -> ExitCode {
    eprintln!("hocket-vopr: {what}");
    ExitCode::from(2)
}

fn replay(seed: u64, bug: Option<Bug>) -> ExitCode {
    let mut log = Vec::new();
    let result = run(seed, bug, Some(&mut log));
    for line in log {
        println!("{line}");
    }
    match result {
        Ok(outcome) => {
            println!("{outcome:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn seeds(from: u64, to: u64, bug: Option<Bug>) -> ExitCode {
    let (mut live, mut met, mut events, mut steps) = (0, 0, 0, 0);
    for seed in from..to {
        match run(seed, bug, None) {
            Ok(outcome) => {
                live += u64::from(outcome.live);
                met += outcome.generations.saturating_sub(1);
                events += outcome.events;
                steps += outcome.steps;
            }
            Err(failure) => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    let seeds = to - from;
    println!(
        "{seeds} seeds, {live} went on after their faults, {steps} steps, {met} meetings, {events} events"
    );
    ExitCode::SUCCESS
}
