//! What the simulation does not show: hostile or mistaken input, and how long waits are. All else is in `crates/vopr`.

use super::coordinator::{Action, Coordinator, Event};
use super::member::{self, Exit, Participant};
use super::{Decision, Ending, Kind, Limits, Note, Order, Report, Script};
use hocket_ids::Member;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn founded(world: u64) -> Decision {
    let members = (0..world).map(Member).collect();
    Decision { epoch: 1, base: 0, kind: Kind::Founded, members, fresh: vec![], evicted: vec![] }
}

/// A coordinator whose journal has an epoch of so many members, all of which are connected, each on a host of its own.
fn coordinator(world: u64, limits: Limits) -> Coordinator {
    let mut coordinator = Coordinator::new(world as usize, &[founded(world)], limits, Duration::ZERO);
    for member in 0..world {
        let hello = Note::Hello { epoch: Some(1), host: member as u32, founds: false };
        assert_eq!(note(&mut coordinator, member, hello, Duration::ZERO), []);
        note(&mut coordinator, member, Note::Entered { epoch: 1 }, Duration::ZERO);
    }
    coordinator
}

fn note(coordinator: &mut Coordinator, from: u64, note: Note, now: Duration) -> Vec<Action> {
    coordinator.handle(Event::Note { from: Member(from), note }, now)
}

fn report(steps: u64, prepared: bool, suspects: &[u64]) -> Note {
    let suspects = suspects.iter().copied().map(Member).collect();
    Note::Report(Report { epoch: Some(1), steps: Some(steps), prepared, script: Script::Computes, suspects })
}

/// Of a member that suspects nobody, and whose script is there.
fn script(steps: u64, script: Script) -> Note {
    Note::Report(Report { epoch: Some(1), steps: Some(steps), prepared: false, script, suspects: vec![] })
}

/// Time passes second by second; all that is done meanwhile.
fn wait(coordinator: &mut Coordinator, from: Duration, seconds: u32) -> Vec<Action> {
    (1..=seconds).flat_map(|second| coordinator.handle(Event::Tick, from + SECOND * second)).collect()
}

fn decided(actions: &[Action]) -> Option<&Decision> {
    actions.iter().find_map(|action| match action {
        Action::Write(decision) => Some(decision),
        _ => None,
    })
}

/// A host that is cut off would be waited for as long as a process that computes; or one that has just reported would be left behind.
#[test]
fn who_is_complained_of_and_says_nothing_is_doubted() {
    let mut coordinator = coordinator(4, Limits::default());
    assert_eq!(coordinator.doubted(), []);
    note(&mut coordinator, 0, report(5, false, &[2, 3]), SECOND);
    assert_eq!(coordinator.doubted(), [Member(2), Member(3)]);
    note(&mut coordinator, 2, report(5, false, &[0]), SECOND);
    assert_eq!(coordinator.doubted(), [Member(3)]);
    let actions = coordinator.handle(Event::Unlinked(Member(3)), SECOND);
    let why = "the coordinator and 1 member cannot hear it".to_owned();
    assert!(actions.contains(&Action::Kill { member: Member(3), why }), "{actions:?}");
    assert_eq!(coordinator.doubted(), []);
}

/// Those that waited for a rank that hangs would go, and it would go on alone. Who waits as well, only not as long yet, is not to blame.
#[test]
fn of_who_waits_and_who_does_not_come_the_other_goes() {
    let mut coordinator = coordinator(4, Limits::default());
    note(&mut coordinator, 0, script(5, Script::Overdue), SECOND);
    note(&mut coordinator, 1, script(5, Script::Computes), SECOND);
    note(&mut coordinator, 2, script(5, Script::Computes), SECOND);
    note(&mut coordinator, 3, script(5, Script::Waits), SECOND);
    assert_eq!(decided(&note(&mut coordinator, 2, script(5, Script::Waits), SECOND * 2)), None);
    let actions = wait(&mut coordinator, SECOND * 2, 2);
    let decision = decided(&actions).unwrap();
    assert_eq!((decision.members.len(), &decision.evicted[..]), (3, &[Member(1)][..]));
    let why = "1 member waited for it in vain".to_owned();
    assert!(actions.contains(&Action::Kill { member: Member(1), why }), "{actions:?}");
}

/// A member that comes just when others have lost patience would cost a place; or ranks that do not do the same would wait for each
/// other for ever.
#[test]
fn where_all_are_there_they_wait_once_more_and_then_the_job_ends() {
    let mut coordinator = coordinator(2, Limits::default());
    let mut round = |epoch: u64, now: Duration| {
        for (member, script) in [(0, Script::Overdue), (1, Script::Waits)] {
            let report =
                Report { epoch: Some(epoch), steps: Some(5), prepared: false, script, suspects: vec![] };
            let actions = note(&mut coordinator, member, Note::Report(report), now);
            if member == 1 {
                coordinator.handle(Event::Written, now);
                return actions;
            }
        }
        unreachable!()
    };
    let decision = decided(&round(1, SECOND)).cloned().unwrap();
    assert_eq!((decision.members.len(), decision.evicted), (2, vec![]));
    let ending = Ending::Stuck { members: 2, steps: 5 };
    assert_eq!(round(2, SECOND * 9).last(), Some(&Action::End(ending)));
}

/// A script that ends before the others would take them along, or be killed as it ends.
#[test]
fn whose_script_has_ended_goes_and_is_not_killed() {
    let mut coordinator = coordinator(3, Limits::default());
    note(&mut coordinator, 0, report(5, false, &[2]), SECOND);
    note(&mut coordinator, 1, report(5, false, &[]), SECOND);
    let actions = note(&mut coordinator, 2, script(5, Script::Ended), SECOND);
    assert_eq!(decided(&actions).unwrap().evicted, [Member(2)]);
    assert!(actions.contains(&Action::LetGo(Member(2))), "{actions:?}");
    assert!(!actions.iter().any(|action| matches!(action, Action::Kill { .. })), "{actions:?}");
}

/// A copy of the journal from yesterday would make a second job of the members that it still knows.
#[test]
fn an_old_journal_is_refused() {
    let mut coordinator = Coordinator::new(2, &[founded(2)], Limits::default(), Duration::ZERO);
    let hello = Note::Hello { epoch: Some(4), host: 0, founds: false };
    let ending = Ending::OldJournal { member: Member(0), epoch: 4, newest: 1 };
    assert!(note(&mut coordinator, 0, hello, SECOND).contains(&Action::End(ending)));
}

/// One dead member would cost seconds, or a short silence a member.
#[test]
fn who_is_gone_goes_at_once_and_who_is_silent_in_a_round() {
    let mut fast = coordinator(3, Limits::default());
    fast.handle(Event::Unlinked(Member(2)), SECOND);
    note(&mut fast, 0, report(5, false, &[2]), SECOND);
    let actions = note(&mut fast, 1, report(5, false, &[2]), SECOND);
    let decision = decided(&actions).unwrap();
    assert_eq!(
        (&decision.members[..], &decision.evicted[..]),
        (&[Member(0), Member(1)][..], &[Member(2)][..])
    );
    assert_eq!(decision.kind, Kind::Loss { steps: 5 });

    // Both ends of a cut complain; both reach the coordinator.
    let mut slow = coordinator(3, Limits::default());
    note(&mut slow, 0, report(5, false, &[1]), SECOND);
    note(&mut slow, 1, report(5, false, &[0]), SECOND);
    assert_eq!(decided(&note(&mut slow, 2, report(5, false, &[]), SECOND)), None);
    assert_eq!(decided(&wait(&mut slow, SECOND, 2)), None);
    assert_eq!(decided(&wait(&mut slow, SECOND * 3, 1)).unwrap().evicted, [Member(1)]);
}

/// The first member through the last barrier of a leaver closes its connection to it: then the leaver's word would cost that member
/// its place. If that member says that it has not begun the epoch without the leaver, its connection was cut.
#[test]
fn a_leaver_accuses_nobody_who_went_on_without_it() {
    let told = |epoch: u64, steps: u64| {
        let mut coordinator = coordinator(3, Limits::default());
        let proposal = decided(&note(&mut coordinator, 2, Note::Leave, SECOND)).cloned().unwrap();
        assert_eq!((proposal.kind, &proposal.members[..]), (Kind::Planned, &[Member(0), Member(1)][..]));
        coordinator.handle(Event::Written, SECOND);
        note(&mut coordinator, 2, report(5, true, &[0]), SECOND);
        note(&mut coordinator, 1, report(5, true, &[]), SECOND);
        let first = Report {
            epoch: Some(epoch),
            steps: Some(steps),
            prepared: false,
            script: Script::Computes,
            suspects: vec![],
        };
        let mut actions = note(&mut coordinator, 0, Note::Report(first), SECOND);
        actions.extend(wait(&mut coordinator, SECOND, 4));
        decided(&actions).cloned().unwrap()
    };
    let went_on = told(2, 6);
    assert_eq!((&went_on.members[..], &went_on.evicted[..]), (&[Member(0), Member(1)][..], &[][..]));
    assert_eq!((went_on.base, went_on.kind), (2, Kind::Loss { steps: 6 }));
    assert_eq!(told(1, 5).evicted, [Member(0)]);
}

/// A coordinator that was stopped would evict all members at once when it goes on.
#[test]
fn our_own_sleep_evicts_nobody() {
    let mut coordinator = coordinator(2, Limits::default());
    note(&mut coordinator, 0, report(5, false, &[]), SECOND);
    assert_eq!(coordinator.handle(Event::Tick, SECOND * 1000), []);
    let decision =
        decided(&note(&mut coordinator, 1, report(5, false, &[]), SECOND * 1001)).cloned().unwrap();
    assert_eq!((decision.members.len(), decision.evicted), (2, vec![]));
}

/// A job below its minimum would go on, wait for ever, or end without a name.
#[test]
fn too_few_members_wait_and_then_end() {
    let limits = Limits { members_min: 2, rejoin_patience: SECOND * 10, ..Limits::default() };
    let mut coordinator = coordinator(2, limits);
    coordinator.handle(Event::Unlinked(Member(1)), SECOND);
    let actions = note(&mut coordinator, 0, report(5, false, &[1]), SECOND);
    assert_eq!(decided(&actions), None);
    let waits = Action::Wait { left: 1, lost: vec![Member(1)] };
    assert!(actions.contains(&waits), "{actions:?}");
    let actions = wait(&mut coordinator, SECOND, 12);
    assert!(!actions.contains(&waits), "it is said once: {actions:?}");
    let ending = Ending::BelowMinimum { left: 1, needed: 2, waited: SECOND * 10, lost: vec![Member(1)] };
    assert_eq!(
        ending.to_string(),
        "1 of at least 2 members are left, and nobody came in 10s; lost: members 1"
    );
    assert!(actions.contains(&Action::End(ending.clone())), "{actions:?}");
    assert!(actions.contains(&Action::Send { to: Member(0), order: Order::End(ending) }));
}

/// A joiner would not bring a job back that waits for it, or would not get the state.
#[test]
fn a_joiner_fills_up_a_job_that_waits() {
    let limits = Limits { members_min: 2, ..Limits::default() };
    let mut coordinator = coordinator(2, limits);
    coordinator.handle(Event::Unlinked(Member(1)), SECOND);
    note(&mut coordinator, 0, report(5, false, &[1]), SECOND);
    let hello = Note::Hello { epoch: None, host: 7, founds: false };
    let decision = decided(&note(&mut coordinator, 7, hello, SECOND * 2)).cloned().unwrap();
    assert_eq!((decision.members, decision.fresh), (vec![Member(0), Member(7)], vec![Member(7)]));
}

/// A forged report could make members commit a step whose sums they do not have.
#[test]
fn reports_that_contradict_each_other_end_the_job() {
    let mut coordinator = coordinator(2, Limits::default());
    note(&mut coordinator, 0, report(9, false, &[]), SECOND);
    let actions = note(&mut coordinator, 1, report(5, true, &[]), SECOND);
    assert!(
        matches!(actions.last(), Some(Action::End(Ending::Contradiction { steps: 9, .. }))),
        "{actions:?}"
    );
}

/// A stranger could interrupt the job, or speak for a member.
#[test]
fn who_has_not_said_hello_is_not_heard() {
    let mut coordinator = coordinator(2, Limits::default());
    assert_eq!(note(&mut coordinator, 9, report(9, false, &[0]), SECOND), []);
    let hello = Note::Hello { epoch: Some(1), host: 3, founds: false };
    let evicted = note(&mut coordinator, 9, hello, SECOND);
    assert!(
        matches!(&evicted[..], [Action::Send { order: Order::Evicted { epoch: 1, .. }, .. }]),
        "{evicted:?}"
    );
    assert_eq!(note(&mut coordinator, 9, report(9, false, &[0]), SECOND), []);
}

/// Where its script is would not be known to the coordinator, which then takes it for one that hangs.
#[test]
fn a_member_says_where_its_script_is_as_soon_as_it_is_there() {
    let mut participant = trained();
    let said = |actions: Vec<member::Action>| {
        actions.into_iter().find_map(|action| match action {
            member::Action::Send(Note::Report(report)) => Some(report.script),
            _ => None,
        })
    };
    // It has come somewhere before, and gone on.
    participant.handle(member::Event::Waits, SECOND);
    participant.handle(member::Event::Order(Order::Recall { next: 2 }), SECOND);
    assert_eq!(said(participant.handle(member::Event::Quiesced, SECOND)), Some(Script::Computes));
    assert_eq!(said(participant.handle(member::Event::Waits, SECOND)), Some(Script::Waits));
    assert_eq!(said(participant.handle(member::Event::Waits, SECOND)), None);
    let mut participant = trained();
    assert_eq!(participant.handle(member::Event::Overdue, SECOND), [member::Action::Quiesce]);
    assert_eq!(said(participant.handle(member::Event::Quiesced, SECOND)), Some(Script::Overdue));
}

fn trained() -> Participant {
    let mut participant = Participant::new(Member(0), 0, Some(0), Limits::default(), Duration::ZERO);
    participant.handle(member::Event::Linked, Duration::ZERO);
    participant.handle(member::Event::Order(Order::Decide(founded(2))), Duration::ZERO);
    participant
}

/// A newcomer that has taken a lost member's place, and was not heard when the others met, would end their job when it comes back to
/// another coordinator: its epoch is of a generation before, and looks newer than all in the journal.
#[test]
fn a_newcomer_names_no_epoch_when_it_comes_back() {
    let mut newcomer = Participant::new(Member(7), 7, None, Limits::default(), Duration::ZERO);
    newcomer.handle(member::Event::Linked, Duration::ZERO);
    let members = vec![Member(0), Member(7)];
    let (kind, fresh) = (Kind::Loss { steps: 3 }, vec![Member(7)]);
    let filled = Decision { epoch: 9, base: 8, kind, members, fresh, evicted: vec![Member(1)] };
    newcomer.handle(member::Event::Order(Order::Decide(filled.clone())), SECOND);
    assert_eq!(newcomer.in_force(), Some(9));
    newcomer.handle(member::Event::Unlinked, SECOND);
    let hello = Note::Hello { epoch: None, host: 7, founds: false };
    assert_eq!(newcomer.handle(member::Event::Linked, SECOND), [member::Action::Send(hello)]);
    // The one that had decided so says so again.
    newcomer.handle(member::Event::Order(Order::Decide(filled)), SECOND);
    assert_eq!(newcomer.in_force(), Some(9));
}

/// Training would end with its launcher though nothing is lost, or wait for ever for one that is gone.
#[test]
fn a_member_needs_the_coordinator_only_after_a_loss() {
    let mut participant = trained();
    participant.handle(member::Event::Unlinked, SECOND);
    for second in 2..100 {
        assert_eq!(participant.handle(member::Event::Tick, SECOND * second), []);
    }
    participant.handle(member::Event::Lost(Member(1)), SECOND * 100);
    participant.handle(member::Event::Quiesced, SECOND * 100);
    let ended = (101..200).find_map(|second| participant.handle(member::Event::Tick, SECOND * second).pop());
    assert_eq!(ended, Some(member::Action::Exit(Exit::CoordinatorLost { waited: SECOND * 61 })));
}

/// A forged decision could make a member skip its report, and with it the promise that makes a decision exact.
#[test]
fn a_decision_before_the_report_is_refused() {
    let mut participant = trained();
    let next = Decision {
        epoch: 2,
        base: 1,
        kind: Kind::Loss { steps: 0 },
        evicted: vec![Member(1)],
        members: vec![Member(0)],
        fresh: vec![],
    };
    let actions = participant.handle(member::Event::Order(Order::Decide(next)), SECOND);
    assert!(matches!(&actions[..], [member::Action::Exit(Exit::Contradiction { .. })]), "{actions:?}");
}
