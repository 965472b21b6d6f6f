//! Whether a job can be simulated: its graphs, its ranks and its conditions fit one another and the network.

use crate::conditions::Conditions;
use crate::error::Error;
use crate::graph::Graph;
use crate::rank::Job;
use hocket_network::Network;

/// [`Error::Job`] says what is wrong. `recorded`: a record of every op is asked for.
pub fn check(
    network: &Network,
    graphs: &[&Graph],
    job: &Job,
    conditions: &Conditions,
    recorded: bool,
) -> Result<(), Error> {
    let wrong = |what: String| Err(Error::Job { what });
    for (index, graph) in graphs.iter().enumerate() {
        // A program may be of a job's first ranks alone: the others have no part in it.
        let fits = match graph {
            Graph::Listed(_) => graph.world() <= job.world,
            Graph::Ring(_) | Graph::AllToAll(_) => graph.world() == job.world,
        };
        if !fits {
            return wrong(format!("graph {index} is of {} ranks, the job of {}", graph.world(), job.world));
        }
        if recorded && !matches!(graph, Graph::Listed(_)) {
            return wrong(format!("graph {index} is a pattern: only programs are recorded"));
        }
    }
    if let Some(what) = job.fault(graphs.len()) {
        return wrong(what);
    }
    if !(0.0..=100.0).contains(&conditions.jitter) {
        return wrong(format!("a jitter of {}: it is a share, 0 to 100", conditions.jitter));
    }
    for &(rank, factor) in &conditions.slow {
        if rank as usize >= job.world || !(factor > 0.0 && factor.is_finite()) {
            return wrong(format!("rank {rank} is {factor} times as slow: there are {} ranks", job.world));
        }
    }
    for change in &conditions.changes {
        let sound = change.at_s >= 0.0 && change.bit_per_s >= 0.0 && change.bit_per_s.is_finite();
        if !sound || change.link as usize >= network.links().len() {
            return wrong(format!(
                "link {} cannot change to {} bit/s at {} s",
                change.link, change.bit_per_s, change.at_s
            ));
        }
    }
    Ok(())
}
