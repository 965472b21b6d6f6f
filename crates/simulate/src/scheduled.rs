//! The job of ranks that train by a schedule: they compute, start launches, and wait for those that are due.

use crate::error::Error;
use crate::rank::{Act, Job, Started};
use crate::time::from_s;
use hocket_schedule::{Launch, Schedule, Stage};

/// A bucket of a model, in seconds after forward began.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Index of its graph.
    pub graph: usize,
    /// Of launches that are due in the same iteration, those of lower priority go first.
    pub priority: u32,
    /// When forward needs its parameters.
    pub needed_s: f64,
    /// When it can be launched.
    pub ready_s: f64,
}

/// Iterations of a model, alike but for communication.
#[derive(Clone, Debug)]
pub struct Training {
    pub buckets: Vec<Bucket>,
    /// When backward ends, in seconds after forward began.
    pub backward_end_s: f64,
    /// An iteration without communication.
    pub step_s: f64,
    /// Number of iterations.
    pub count: usize,
}

impl Job {
    /// Training by a schedule. Launches are numbered as [`Schedule::launches`]. A launch that is due earlier goes first, and then by
    /// priority. `pace`: factors on computation, one for all ranks or by rank. `late_s`: how much later each rank begins an iteration
    /// than it could, as if it waited for data; one for all or by rank.
    ///
    /// [`Error::Job`]: a schedule that no session could keep.
    pub fn scheduled(
        world: usize,
        schedule: &Schedule,
        training: &Training,
        pace: &[f64],
        late_s: &[f64],
    ) -> Result<Self, Error> {
        let buckets = &training.buckets;
        schedule.check(buckets.len()).map_err(|fault| Error::Job { what: fault.to_string() })?;
        let launches = schedule.launches(buckets.len(), training.count);
        let started = launches.iter().map(|launch| {
            let due = launch.turn.due.iteration + launch.begun;
            let Bucket { graph, priority, .. } = buckets[launch.bucket];
            Started { graph, priority: (due * buckets.len()) as u32 + priority }
        });
        let acts = acts(&launches, training);
        let of = |factors: &[f64], rank: usize| factors.get(rank).or(factors.first()).copied().unwrap_or(0.0);
        let timeline = |rank: usize| {
            let (factor, late_s) = (of(pace, rank), of(late_s, rank));
            let mut begins = true;
            let act = |&(seconds, act): &(f64, Act)| {
                let before_s = if std::mem::replace(&mut begins, act == Act::End) { late_s } else { 0.0 };
                [Act::Compute(from_s(before_s + seconds * factor)), act]
            };
            acts.iter().flat_map(act).collect()
        };
        let timelines = (0..pace.len().max(late_s.len())).map(timeline).collect();
        Ok(Self { world, launches: started.collect(), timelines })
    }
}

/// Acts of a rank, each after so many seconds of computation.
fn acts(launches: &[Launch<'_>], training: &Training) -> Vec<(f64, Act)> {
    let ready_s = training.buckets.iter().map(|bucket| bucket.ready_s);
    let end_s = ready_s.fold(training.backward_end_s, f64::max);
    let mut by_iteration = vec![Vec::new(); training.count];
    for (number, launch) in (0..).zip(launches) {
        let Bucket { needed_s, ready_s, .. } = training.buckets[launch.bucket];
        let of_it = [(launch.turn.sent_at(), Act::Launch(number)), (launch.turn.due_at(), Act::Wait(number))];
        for ((iteration, stage, place), act) in of_it {
            let at_s = match stage {
                Stage::Begin => 0.0,
                Stage::Gate => needed_s,
                Stage::Backward => ready_s,
                Stage::BackwardEnd | Stage::End => end_s,
            };
            // What is due after the last iteration is not awaited.
            if let Some(acts) = by_iteration.get_mut(iteration + launch.begun) {
                acts.push((at_s, (stage, place, launch.bucket), act));
            }
        }
    }
    let tail_s = (training.step_s - training.backward_end_s).max(0.0);
    let mut acts = Vec::new();
    for mut own in by_iteration {
        own.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut now_s = 0.0;
        for (at_s, _, act) in own {
            acts.push((at_s - now_s, act));
            now_s = at_s;
        }
        acts.extend([((end_s - now_s).max(0.0), Act::Compute(0)), (tail_s, Act::End)]);
    }
    acts
}
