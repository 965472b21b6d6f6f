//! `Participant` and `Coordinator`: the machines of elastic jobs, with notes and orders as bytes; and `Liveness`, of their connections.

use crate::exceptions::error;
use crate::waits::duration;
use hocket_ids::Member;
use hocket_protocol::liveness::{self, Liveness as Silence, Patience};
use hocket_protocol::membership::coordinator::{self, Coordinator as Machine};
use hocket_protocol::membership::member::{self, Participant as Side};
use hocket_protocol::membership::shortage::{Outcome, Shortage as Lack};
use hocket_protocol::membership::{Decision, Ending, Kind, Limits, Note, Order, eviction, journal};
use hocket_protocol::path::Path;
use hocket_protocol::planted::Rules;
use hocket_wire::connection::Info;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a machine of elastic jobs wants done.
///
/// A participant's kinds: `send` (`bytes`: a note), `quiesce` (start nothing, let what runs end, then say `quiesced`), `barrier`
/// (enter that of `step`), `commit` (`step` stands), `prepare` (`epoch`, then say `loaded`), `enter` (begin `epoch` with `members`,
/// and reduce a step that was aborted again), `left` and `exit` (take no further part: `why`). A coordinator's: `send` (`bytes`: an
/// order for `member`), `write` (`epoch` of `members` without those `evicted`, from `step` on: append `bytes` to the journal, then
/// say `written`), `kill` (the process of `member`, and `why`), `let_go` (the script of `member` has ended before others'), `wait`
/// (for others to join: `step` members are left, and `members` are lost), `end` (the job: `why`; `members` are lost).
#[pyclass(module = "hocket._native", frozen, get_all)]
#[derive(Default)]
pub struct MemberAction {
    kind: &'static str,
    bytes: Option<Py<PyBytes>>,
    member: Option<u64>,
    step: Option<u64>,
    epoch: Option<u64>,
    members: Vec<u64>,
    evicted: Vec<u64>,
    why: Option<String>,
}

fn numbers(members: &[Member]) -> Vec<u64> {
    members.iter().map(|member| member.0).collect()
}

/// Both machines speak in whole messages: a transport with frames of its own needs their bodies alone.
fn body(py: Python<'_>, message: &[u8]) -> Option<Py<PyBytes>> {
    message.get(size_of::<u32>()..).map(|body| PyBytes::new(py, body).unbind())
}

fn decided(kind: &'static str, decision: &Decision) -> MemberAction {
    let step = match decision.kind {
        Kind::Loss { steps } => Some(steps),
        Kind::Founded => Some(0),
        Kind::Planned => None,
    };
    MemberAction {
        kind,
        step,
        epoch: Some(decision.epoch),
        members: numbers(&decision.members),
        evicted: numbers(&decision.evicted),
        ..MemberAction::default()
    }
}

fn of_member(py: Python<'_>, action: &member::Action) -> MemberAction {
    use member::Action;
    let plain = |kind| MemberAction { kind, ..MemberAction::default() };
    match action {
        Action::Send(note) => MemberAction { bytes: body(py, &note.encode()), ..plain("send") },
        Action::Prepare(decision) => decided("prepare", decision),
        Action::Barrier { step } => MemberAction { step: Some(*step), ..plain("barrier") },
        Action::Commit { step, epoch } => {
            MemberAction { step: Some(*step), epoch: Some(*epoch), ..plain("commit") }
        }
        Action::Quiesce => plain("quiesce"),
        Action::Enter(decision) => decided("enter", decision),
        Action::Exit(member::Exit::Left) => {
            MemberAction { why: Some(member::Exit::Left.to_string()), ..plain("left") }
        }
        Action::Exit(exit) => MemberAction { why: Some(exit.to_string()), ..plain("exit") },
    }
}

/// The last order, and its bytes: an order to many members is encoded once.
#[derive(Default)]
struct Encoded<'a>(Option<(&'a Order, Option<Py<PyBytes>>)>);

impl<'a> Encoded<'a> {
    fn body(&mut self, py: Python<'_>, order: &'a Order) -> Option<Py<PyBytes>> {
        let known = self.0.take().filter(|(known, _)| *known == order);
        let (_, bytes) = self.0.insert(known.unwrap_or_else(|| (order, body(py, &order.encode()))));
        bytes.as_ref().map(|bytes| bytes.clone_ref(py))
    }
}

fn of_coordinator<'a>(
    py: Python<'_>,
    action: &'a coordinator::Action,
    encoded: &mut Encoded<'a>,
) -> MemberAction {
    use coordinator::Action;
    let plain = |kind| MemberAction { kind, ..MemberAction::default() };
    match action {
        Action::Send { to, order } => {
            MemberAction { member: Some(to.0), bytes: encoded.body(py, order), ..plain("send") }
        }
        Action::Write(decision) => {
            let record = PyBytes::new(py, &journal::encode(decision)).unbind();
            MemberAction { bytes: Some(record), ..decided("write", decision) }
        }
        Action::Kill { member, why } => {
            MemberAction { member: Some(member.0), why: Some(why.clone()), ..plain("kill") }
        }
        Action::LetGo(member) => MemberAction { member: Some(member.0), ..plain("let_go") },
        Action::Wait { left, lost } => waits(*left, lost),
        Action::End(ending) => ends(ending),
    }
}

fn waits(left: usize, lost: &[Member]) -> MemberAction {
    let (step, members) = (Some(left as u64), numbers(lost));
    MemberAction { kind: "wait", step, members, ..MemberAction::default() }
}

fn ends(ending: &Ending) -> MemberAction {
    let members = match ending {
        Ending::BelowMinimum { lost, .. } | Ending::StateLost { lost } => numbers(lost),
        Ending::Stuck { .. } | Ending::OldJournal { .. } | Ending::Contradiction { .. } => Vec::new(),
    };
    MemberAction { kind: "end", why: Some(ending.to_string()), members, ..MemberAction::default() }
}

/// A member's side of an elastic job, without I/O: events in, actions out. `now_s`: on one monotonic clock.
#[pyclass(module = "hocket._native", frozen)]
pub struct Participant(Mutex<Side>);

impl Participant {
    fn side(&self) -> MutexGuard<'_, Side> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, py: Python<'_>, event: member::Event, now_s: f64) -> PyResult<Vec<MemberAction>> {
        let now = duration(py, now_s)?;
        let actions = self.side().handle(event, now);
        Ok(actions.iter().map(|action| of_member(py, action)).collect())
    }
}

#[pymethods]
impl Participant {
    /// On the host of that number. `founds`: it has the state that all begin with, and is no joiner. `coordinator_patience_s`: how
    /// long it waits for a decision while it cannot hear the coordinator.
    #[new]
    #[pyo3(signature = (*, member, host, founds, coordinator_patience_s, now_s))]
    fn new(
        py: Python<'_>,
        member: u64,
        host: u32,
        founds: bool,
        coordinator_patience_s: f64,
        now_s: f64,
    ) -> PyResult<Self> {
        let limits =
            Limits { coordinator_patience: duration(py, coordinator_patience_s)?, ..Limits::default() };
        let steps = founds.then_some(0);
        let side = Side::new(Member(member), host, steps, limits, duration(py, now_s)?);
        Ok(Self(Mutex::new(side)))
    }

    /// The epoch that it trains in; None while it has stopped, or waits for one.
    #[getter]
    fn in_force(&self) -> Option<u64> {
        self.side().in_force()
    }

    /// The coordinator can be heard.
    fn linked(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Linked, now_s)
    }

    /// It cannot be heard any more.
    fn unlinked(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Unlinked, now_s)
    }

    /// The coordinator says something. `RendezvousError`: nothing that one says.
    fn order(&self, py: Python<'_>, body: &[u8], now_s: f64) -> PyResult<Vec<MemberAction>> {
        let order = Order::decode(body).map_err(|cause| error(py, "RendezvousError", &cause.to_string()))?;
        self.handle(py, member::Event::Order(order), now_s)
    }

    /// A peer cannot be heard.
    fn lost(&self, py: Python<'_>, member: u64, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Lost(Member(member)), now_s)
    }

    /// The process of a member on this host has ended.
    fn gone(&self, py: Python<'_>, member: u64, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Gone(Member(member)), now_s)
    }

    /// Nothing runs here any more.
    fn quiesced(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Quiesced, now_s)
    }

    /// The script has come to where it follows what is decided.
    fn waits(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Waits, now_s)
    }

    /// The script has waited for other members as long as it may.
    fn overdue(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Overdue, now_s)
    }

    /// The script has ended, and makes no more steps.
    fn ended(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Ended, now_s)
    }

    /// The newest epoch that it is ready for.
    #[getter]
    fn vote(&self) -> u64 {
        self.side().vote()
    }

    /// It is ready for an epoch that was proposed.
    fn loaded(&self, py: Python<'_>, epoch: u64, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Loaded(epoch), now_s)
    }

    /// It is to leave in order.
    fn leave_asked(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::LeaveAsked, now_s)
    }

    /// All sums of a step are here. `vote`: the smallest of all members'.
    fn prepared(&self, py: Python<'_>, step: u64, vote: u64, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Prepared { step, vote }, now_s)
    }

    /// The barrier of a step is complete here.
    fn done(&self, py: Python<'_>, step: u64, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Done { step }, now_s)
    }

    /// Time passes.
    fn tick(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, member::Event::Tick, now_s)
    }
}

fn read(py: Python<'_>, records: &[u8]) -> PyResult<journal::History> {
    journal::decode(records, Rules::default()).map_err(|cause| error(py, "UsageError", &cause.to_string()))
}

/// The decisions in a coordinator's journal, as actions `write`, and how many of its bytes are whole: a crash may have torn the
/// last record. `UsageError`: damage that no crash leaves.
#[pyfunction]
pub fn read_journal(py: Python<'_>, records: &[u8]) -> PyResult<(Vec<MemberAction>, usize)> {
    let history = read(py, records)?;
    let decisions = history.decisions.iter().map(|decision| decided("write", decision)).collect();
    Ok((decisions, history.bytes))
}

/// The one that decides which members go on, without I/O.
#[pyclass(module = "hocket._native", frozen)]
pub struct Coordinator(Mutex<Machine>);

impl Coordinator {
    fn handle(&self, py: Python<'_>, event: coordinator::Event, now_s: f64) -> PyResult<Vec<MemberAction>> {
        let now = duration(py, now_s)?;
        let actions = self.0.lock().unwrap_or_else(PoisonError::into_inner).handle(event, now);
        let mut encoded = Encoded::default();
        Ok(actions.iter().map(|action| of_coordinator(py, action, &mut encoded)).collect())
    }
}

#[pymethods]
impl Coordinator {
    /// Of a job that `founders` begin, and that takes joiners while it has fewer than `members_max`. When fewer than `members_min`
    /// are left, it waits for joiners for `rejoin_patience_s`, then ends. A member that does not report within `heartbeat_s` is
    /// left behind, and so is a joiner whose epoch has not begun within `join_patience_s`. `history`: records of its journal so
    /// far. `UsageError`: they are damaged.
    #[new]
    #[pyo3(signature = (*, founders, members_min, members_max, heartbeat_s, join_patience_s, rejoin_patience_s, now_s, history))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        founders: usize,
        members_min: usize,
        members_max: usize,
        heartbeat_s: f64,
        join_patience_s: f64,
        rejoin_patience_s: f64,
        now_s: f64,
        history: &[u8],
    ) -> PyResult<Self> {
        let history = read(py, history)?.decisions;
        let limits = Limits {
            members_min,
            members_max,
            heartbeat: duration(py, heartbeat_s)?,
            load_patience: duration(py, join_patience_s)?,
            rejoin_patience: duration(py, rejoin_patience_s)?,
            ..Limits::default()
        };
        let machine = Machine::new(founders, &history, limits, duration(py, now_s)?);
        Ok(Self(Mutex::new(machine)))
    }

    /// A member says something. `RendezvousError`: nothing that one says.
    fn note(&self, py: Python<'_>, member: u64, body: &[u8], now_s: f64) -> PyResult<Vec<MemberAction>> {
        let note = Note::decode(body).map_err(|cause| error(py, "RendezvousError", &cause.to_string()))?;
        self.handle(py, coordinator::Event::Note { from: Member(member), note }, now_s)
    }

    /// A member's connection has ended, or it cannot be heard.
    fn unlinked(&self, py: Python<'_>, member: u64, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, coordinator::Event::Unlinked(Member(member)), now_s)
    }

    /// A member's process has ended.
    fn gone(&self, py: Python<'_>, member: u64, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, coordinator::Event::Gone(Member(member)), now_s)
    }

    /// What it wanted to be written is.
    fn written(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, coordinator::Event::Written, now_s)
    }

    /// Time passes.
    fn tick(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<MemberAction>> {
        self.handle(py, coordinator::Event::Tick, now_s)
    }

    /// Members of which others complain, and that have not reported since they were asked to.
    #[getter]
    fn doubted(&self) -> Vec<u64> {
        let machine = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        machine.doubted().into_iter().map(|member| member.0).collect()
    }
}

/// `complaints` are pairs of who cannot hear whom. Who has to go so that nobody complains of anybody who stays, and of how many
/// complaints each is the object at that moment: first whoever has most, then the younger.
#[pyfunction]
pub fn evicted(complaints: Vec<(u64, u64)>) -> Vec<(u64, usize)> {
    let pairs = complaints.into_iter().map(|(by, of)| (Member(by), Member(of))).collect();
    eviction::evicted(&pairs).into_iter().map(|(member, count)| (member.0, count)).collect()
}

/// The rule by which a job with too few members waits for others, and then ends, between two steps. During a step, the coordinator
/// follows the same one. `now_s`: on one monotonic clock.
#[pyclass(module = "hocket._native", frozen)]
pub struct Shortage(Mutex<Lack>, Limits);

#[pymethods]
impl Shortage {
    /// Of a job that must have `members_min`, and waits for others for `rejoin_patience_s`.
    #[new]
    #[pyo3(signature = (*, members_min, rejoin_patience_s))]
    fn new(py: Python<'_>, members_min: usize, rejoin_patience_s: f64) -> PyResult<Self> {
        let rejoin_patience = duration(py, rejoin_patience_s)?;
        Ok(Self(Mutex::default(), Limits { members_min, rejoin_patience, ..Limits::default() }))
    }

    /// The job waits.
    #[getter]
    fn lasts(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lasts()
    }

    /// What follows a loss: `meet` (`members`: those `left`, and so many of those `waiting` as they need), `wait` or `end` as a
    /// coordinator's; None: the job waits on. `holders`: who has the state.
    fn follow(
        &self,
        py: Python<'_>,
        left: Vec<u64>,
        holders: Vec<u64>,
        waiting: Vec<u64>,
        lost: Vec<u64>,
        now_s: f64,
    ) -> PyResult<Option<MemberAction>> {
        let given = |each: Vec<u64>| each.into_iter().map(Member).collect::<Vec<_>>();
        let (left, holders, lost) = (given(left), given(holders), given(lost));
        let (waiting, now) = (waiting.into_iter().map(Member), duration(py, now_s)?);
        let mut lack = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = lack.follow_between_steps(&left, &holders, waiting, &lost, &self.1, now);
        Ok(match outcome {
            Outcome::Joined(joiners) => {
                let members = numbers(&[left, joiners].concat());
                Some(MemberAction { kind: "meet", members, ..MemberAction::default() })
            }
            Outcome::Waits { begins } => begins.then(|| waits(left.len(), &lost)),
            Outcome::Ends(ending) => Some(ends(&ending)),
        })
    }
}

/// Whether the other end of a connection can be heard, without I/O. `now_s`: on a monotonic clock.
#[pyclass(module = "hocket._native", frozen)]
pub struct Liveness(Mutex<(Silence, Path)>);

impl Liveness {
    fn state(&self) -> MutexGuard<'_, (Silence, Path)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Liveness {
    /// It has just been heard.
    #[new]
    #[pyo3(signature = (*, silence_max_s, now_s))]
    fn new(py: Python<'_>, silence_max_s: f64, now_s: f64) -> PyResult<Self> {
        let patience = Patience::of(duration(py, silence_max_s)?);
        let silence = Silence::new(patience, duration(py, now_s)?);
        Ok(Self(Mutex::new((silence, Path::default()))))
    }

    /// Something has come from it.
    fn heard(&self, py: Python<'_>, now_s: f64) -> PyResult<()> {
        let (silence, path) = &mut *self.state();
        silence.handle_arrival(duration(py, now_s)?);
        path.rest();
        Ok(())
    }

    /// Time passes: it should be asked for a sign, or has been silent for `silence_max_s` in spite of that. A time in which this is
    /// not called counts as a second at most. `tcp_info`, what the system's option of that name tells of the connection, is given in
    /// each call while it is doubted: then it is also lost if its host acknowledges nothing for one of TCP's time-outs.
    #[pyo3(signature = (now_s, tcp_info = None) -> "typing.Literal['ask', 'lost'] | None")]
    fn poll(&self, py: Python<'_>, now_s: f64, tcp_info: Option<&[u8]>) -> PyResult<Option<&'static str>> {
        let now = duration(py, now_s)?;
        let (silence, path) = &mut *self.state();
        match tcp_info.map(|stored| Info::of_option(stored).path_at(now)) {
            None => path.rest(),
            Some(look) if path.handle_look(&look, 1).is_some() => return Ok(Some("lost")),
            Some(_) => {}
        }
        Ok(match silence.poll(now, || true) {
            liveness::Action::Wait => None,
            liveness::Action::Ask => Some("ask"),
            liveness::Action::GiveUp { .. } => Some("lost"),
        })
    }
}
