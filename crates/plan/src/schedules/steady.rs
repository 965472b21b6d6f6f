//! A schedule in the long run: links never idle beside work, and computation waits only for what is due.
//!
//! Every link and engine serves arrived work in order of its due iteration, then of priority. Computation stops at the
//! end of backward, or in forward at the gate of a bucket, until what is due there is done. While it stops nothing new
//! arrives, so links can be followed without looking ahead. `timeline.rs` is the bound for one iteration; this follows
//! the same links, moment by moment.

use crate::timeline::Piece;
use hocket_schedule::{At, Due, Point as Begins, Schedule, Sent, Turn};

/// An iteration without communication, in seconds after its forward began.
#[derive(Clone, Debug)]
pub struct Computation {
    /// By bucket: when forward needs its parameters.
    pub needed_s: Vec<f64>,
    /// When backward ends.
    pub backward_end_s: f64,
    /// When the next iteration begins.
    pub step_s: f64,
}

/// A schedule in the long run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Mean of iterations.
    pub iteration_s: f64,
    /// Mean over buckets.
    pub updates_per_iteration: f64,
}

/// Minimum number of iterations where periods do not repeat, of which the second half counts.
const ITERATIONS_MIN: usize = 24;

/// Differences of times, as shares of an iteration, with which a period counts as a repetition of the one before.
const ALIKE: f64 = 1e-9;

/// Runs a schedule until a period leaves everything as the one before it did, or for a while; `pieces` by bucket, in order of
/// priority: their starts are when gradients are ready in an iteration.
pub fn steady(computation: &Computation, pieces: &[Piece], schedule: &Schedule) -> Steady {
    let mut run = Run::new(computation, pieces, schedule);
    let periods = 2 * ITERATIONS_MIN.div_ceil(2 * schedule.period);
    let mut ends_s = vec![0.0];
    let mut before = Vec::new();
    for period in 0..periods {
        for iteration in period * schedule.period..(period + 1) * schedule.period {
            run.iterate(iteration);
        }
        ends_s.push(run.now_s);
        let after = run.left_over((period + 1) * schedule.period);
        if alike(&before, &after, ALIKE * computation.step_s) {
            ends_s.drain(..period);
            break;
        }
        before = after;
    }
    let counted = ends_s.len() / 2;
    let spent_s = ends_s[ends_s.len() - 1] - ends_s[ends_s.len() - 1 - counted];
    // If links have slightly too much work, delays absorb it for hundreds of iterations, and then no longer.
    let iteration_s = (spent_s / (counted * schedule.period) as f64).max(carried_s(pieces, schedule));
    Steady { iteration_s, updates_per_iteration: 1.0 / schedule.merge() }
}

fn alike(before: &[f64], after: &[f64], within_s: f64) -> bool {
    before.len() == after.len()
        && before.iter().zip(after).all(|(one, other)| (one - other).abs() <= within_s)
}

/// Average work of the busiest resource in an iteration.
pub(super) fn carried_s(pieces: &[Piece], schedule: &Schedule) -> f64 {
    let resources = pieces.first().map_or(0, |piece| piece.busy_s.len());
    let turns = |bucket: usize| schedule.of(bucket).len() as f64 / schedule.period as f64;
    let of = |resource: usize| {
        pieces.iter().enumerate().map(|(bucket, piece)| turns(bucket) * piece.busy_s[resource]).sum::<f64>()
    };
    (0..resources).map(of).fold(0.0, f64::max)
}

/// A launch in flight.
struct Job {
    bucket: usize,
    due: Due,
    start_s: f64,
    /// Resources that have not served it yet.
    left: usize,
    served_s: f64,
}

/// Work of a job that waits for a resource, or is being served.
struct Work {
    key: (usize, usize),
    job: usize,
    arrives_s: f64,
    left_s: f64,
}

/// An event in an iteration, at its time.
#[derive(Clone, Copy)]
enum Point {
    Gate(usize),
    Ready(usize),
    End,
}

struct Run<'a> {
    computation: &'a Computation,
    pieces: &'a [Piece],
    schedule: &'a Schedule,
    points: Vec<(f64, Point)>,
    now_s: f64,
    /// All jobs so far; those that were waited for have been served.
    jobs: Vec<Job>,
    /// Jobs that were not waited for yet.
    open: Vec<usize>,
    queues: Vec<(f64, Vec<Work>)>,
}

impl<'a> Run<'a> {
    fn new(computation: &'a Computation, pieces: &'a [Piece], schedule: &'a Schedule) -> Self {
        let gates =
            computation.needed_s.iter().enumerate().map(|(at, &needed_s)| (needed_s, Point::Gate(at)));
        let ready = pieces.iter().enumerate().map(|(at, piece)| (piece.start_s, Point::Ready(at)));
        let mut points: Vec<(f64, Point)> = gates.chain(ready).collect();
        // The last bucket is launched a moment after its gradient is there, and waited for in its own iteration all the same.
        let starts = pieces.iter().map(|piece| piece.start_s);
        points.push((starts.fold(computation.backward_end_s, f64::max), Point::End));
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let resources = pieces.first().map_or(0, |piece| piece.busy_s.len());
        Self {
            computation,
            pieces,
            schedule,
            points,
            now_s: 0.0,
            jobs: Vec::new(),
            open: Vec::new(),
            queues: (0..resources).map(|_| (0.0, Vec::new())).collect(),
        }
    }

    /// What is under way before an iteration, and when resources are free, relative to it: equal numbers have an equal future.
    fn left_over(&mut self, iteration: usize) -> Vec<f64> {
        self.serve_until_now();
        let mut numbers = Vec::new();
        for &open in &self.open {
            let job = &self.jobs[open];
            let due = job.due.iteration as f64 - iteration as f64;
            let gate = f64::from(u8::from(job.due.at == At::Gate));
            let served_s = if job.served_s > 0.0 { job.served_s - self.now_s } else { 0.0 };
            let started_s = job.start_s - self.now_s;
            numbers.extend([job.bucket as f64, due, gate, job.left as f64, started_s, served_s]);
        }
        for (free_s, queue) in &self.queues {
            numbers.push((free_s - self.now_s).max(0.0));
            let mut works: Vec<&Work> = queue.iter().collect();
            works.sort_by_key(|work| (work.key, work.job));
            for work in works {
                let due = work.key.0 as f64 - iteration as f64;
                numbers.extend([due, work.key.1 as f64, work.arrives_s - self.now_s, work.left_s]);
            }
        }
        numbers
    }

    fn iterate(&mut self, iteration: usize) {
        let mut passed_s = 0.0;
        self.launch_begun(iteration, Begins::Begin);
        for at in 0..self.points.len() {
            let (point_s, point) = self.points[at];
            self.now_s += (point_s - passed_s).max(0.0);
            passed_s = point_s.max(passed_s);
            match point {
                Point::Gate(bucket) if iteration > 0 => {
                    self.wait(|job| {
                        job.bucket == bucket && job.due <= Due { iteration: iteration - 1, at: At::Gate }
                    });
                }
                Point::Gate(_) => {}
                Point::Ready(bucket) => self.launch_ready(iteration, bucket),
                Point::End => {
                    self.launch_begun(iteration, Begins::BackwardEnd);
                    self.wait(|job| job.due <= Due { iteration, at: At::End });
                }
            }
        }
        self.now_s += (self.computation.step_s - passed_s).max(0.0);
    }

    fn launch_ready(&mut self, iteration: usize, bucket: usize) {
        let (period, phase) = (self.schedule.period, iteration % self.schedule.period);
        if let Some(turn) = self.schedule.ending(bucket, phase)
            && turn.sent == Sent::Ready
        {
            self.launch(bucket, turn, iteration / period);
        }
    }

    fn launch_begun(&mut self, iteration: usize, point: Begins) {
        let (schedule, period) = (self.schedule, self.schedule.period);
        for (bucket, turn) in schedule.launched_at(iteration % period, point) {
            if let Some(since) = iteration.checked_sub(turn.sent_at().0) {
                self.launch(bucket, turn, since / period);
            }
        }
    }

    fn launch(&mut self, bucket: usize, turn: &Turn, period: usize) {
        let piece = &self.pieces[bucket];
        let due = Due { iteration: turn.due.iteration + period * self.schedule.period, ..turn.due };
        let job = self.jobs.len();
        let mut left = 0;
        for ((_, queue), &busy_s) in self.queues.iter_mut().zip(&piece.busy_s) {
            if busy_s > 0.0 {
                let arrives_s = self.now_s + piece.head_s;
                queue.push(Work { key: (due.iteration, bucket), job, arrives_s, left_s: busy_s });
                left += 1;
            }
        }
        self.jobs.push(Job { bucket, due, start_s: self.now_s, left, served_s: 0.0 });
        self.open.push(job);
    }

    /// Continues when all of these are done.
    fn wait(&mut self, due: impl Fn(&Job) -> bool) {
        if !self.open.iter().any(|&job| due(&self.jobs[job])) {
            return;
        }
        let (waited, open): (Vec<usize>, Vec<usize>) =
            self.open.iter().partition(|&&job| due(&self.jobs[job]));
        self.open = open;
        self.serve_until_now();
        for job in waited {
            for resource in 0..if self.jobs[job].left > 0 { self.queues.len() } else { 0 } {
                if self.queues[resource].1.iter().any(|work| work.job == job) {
                    self.serve(resource, f64::INFINITY, Some(job));
                }
            }
            let Job { bucket, start_s, served_s, left, .. } = self.jobs[job];
            debug_assert_eq!(left, 0);
            let piece = &self.pieces[bucket];
            let end_s = if served_s > 0.0 { served_s + piece.tail_s } else { 0.0 };
            self.now_s = self.now_s.max(end_s).max(start_s + piece.alone_s);
        }
    }

    fn serve_until_now(&mut self) {
        for resource in 0..self.queues.len() {
            self.serve(resource, self.now_s, None);
        }
    }

    /// Serves until a time, or until a job is done.
    fn serve(&mut self, resource: usize, until_s: f64, wanted: Option<usize>) {
        let (now_s, queue) = &mut self.queues[resource];
        while *now_s < until_s {
            let arrived = |work: &&Work| work.arrives_s <= *now_s;
            let urgent = queue.iter().filter(arrived).min_by_key(|work| work.key).map(|work| work.job);
            let arrivals = queue.iter().map(|work| work.arrives_s).filter(|arrives_s| arrives_s > now_s);
            let next_s = arrivals.fold(until_s, f64::min);
            let Some(job) = urgent else {
                if next_s.is_infinite() {
                    return;
                }
                *now_s = next_s;
                continue;
            };
            let Some(at) = queue.iter().position(|work| work.job == job) else { return };
            let ends_s = *now_s + queue[at].left_s;
            if ends_s > next_s {
                queue[at].left_s -= next_s - *now_s;
                *now_s = next_s;
                continue;
            }
            *now_s = ends_s;
            queue.swap_remove(at);
            self.jobs[job].left -= 1;
            self.jobs[job].served_s = self.jobs[job].served_s.max(ends_s);
            if wanted == Some(job) {
                return;
            }
        }
    }
}
