//! Steps of training with the machines of the membership, on real links: a rank dies at every edge of every op, and a step is the sum
//! over exactly the members that it names, on all that go on.

use super::*;
use hocket_protocol::membership::coordinator::{self, Coordinator};
use hocket_protocol::membership::member::{self, Participant};
use hocket_protocol::membership::{Decision, Limits, Note, Order};
use std::sync::Mutex;

const STEPS: usize = 2;
/// Sums of one step: a bucket, and one element of a barrier.
const BARRIER_LEN: usize = 4;

/// The coordinator, and orders that members have not read yet.
struct Office {
    coordinator: Coordinator,
    orders: Vec<Vec<Order>>,
    began: Instant,
}

impl Office {
    fn new(world: usize) -> Mutex<Self> {
        // A neighbour's end must be seen.
        let limits = Limits { fence_patience: 2 * TIMEOUT, ..Limits::default() };
        let coordinator = Coordinator::new(world, &[], limits, Duration::ZERO);
        Mutex::new(Self { coordinator, orders: vec![Vec::new(); world], began: Instant::now() })
    }

    fn handle(&mut self, event: coordinator::Event) {
        let actions = self.coordinator.handle(event, self.began.elapsed());
        for action in actions {
            match action {
                coordinator::Action::Send { to, order } => self.orders[to.0 as usize].push(order),
                coordinator::Action::Write(_) => self.handle(coordinator::Event::Written),
                coordinator::Action::Kill { .. }
                | coordinator::Action::LetGo(_)
                | coordinator::Action::Wait { .. } => {}
                coordinator::Action::End(ending) => panic!("{ending}"),
            }
        }
    }
}

/// A rank's side, as a session has it.
struct Side<'a> {
    own: Member,
    engine: &'a Engine,
    office: &'a Mutex<Office>,
    machine: Participant,
    entered: Option<Decision>,
    committed: usize,
    barrier: bool,
}

impl<'a> Side<'a> {
    fn new(own: Member, engine: &'a Engine, office: &'a Mutex<Office>, host: u32) -> Self {
        let machine = Participant::new(own, host, Some(0), Limits::default(), Duration::ZERO);
        let mut side = Self { own, engine, office, machine, entered: None, committed: 0, barrier: false };
        side.handle(member::Event::Linked);
        while side.entered.take().is_none() {
            side.listen();
        }
        side
    }

    fn handle(&mut self, event: member::Event) {
        let now = lock(self.office).began.elapsed();
        for action in self.machine.handle(event, now) {
            match action {
                member::Action::Send(note) => self.say(note),
                member::Action::Quiesce => {
                    self.engine.quiesce("the members change", TIMEOUT).unwrap();
                    self.handle(member::Event::Quiesced);
                }
                member::Action::Barrier { .. } => self.barrier = true,
                member::Action::Commit { step, .. } => self.committed = step as usize + 1,
                member::Action::Enter(decision) => self.entered = Some(decision),
                other => panic!("member {}: {other:?}", self.own),
            }
        }
    }

    fn say(&self, note: Note) {
        lock(self.office).handle(coordinator::Event::Note { from: self.own, note });
    }

    /// What the coordinator says, and which peers are lost.
    fn listen(&mut self) {
        thread::sleep(Duration::from_millis(1));
        for (peer, _) in self.engine.lost() {
            self.handle(member::Event::Lost(peer));
        }
        for neighbour in self.engine.gone().unwrap() {
            self.handle(member::Event::Gone(neighbour));
        }
        let orders = std::mem::take(&mut lock(self.office).orders[self.own.0 as usize]);
        for order in orders {
            self.handle(member::Event::Order(order));
        }
        lock(self.office).handle(coordinator::Event::Tick);
    }

    /// Whether the step stands.
    fn attempt(&mut self, step: usize, [bucket, done]: [u32; 2]) -> Result<bool, Error> {
        self.engine.launch(bucket)?;
        self.engine.wait(bucket, TIMEOUT, || false)?;
        let (step, vote) = (step as u64, self.machine.vote());
        self.barrier = false;
        self.handle(member::Event::Prepared { step, vote });
        if self.barrier {
            self.engine.launch(done)?;
            self.engine.wait(done, TIMEOUT, || false)?;
            self.handle(member::Event::Done { step });
        }
        Ok(self.committed > step as usize)
    }

    /// Begins the next epoch.
    fn go_on(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        while self.entered.is_none() {
            assert!(Instant::now() < deadline, "member {} waits for a decision", self.own);
            self.listen();
        }
        let Decision { epoch, members, .. } = self.entered.take().expect("it was decided");
        self.engine.resume(epoch, &members, &[], TIMEOUT).unwrap();
    }
}

/// Memory for gradients, their sums, and the barrier.
struct Areas([Allocation; 3]);

impl Areas {
    fn load(&self, engine: &Engine, program: fn(usize, usize) -> Program) -> Result<[u32; 2], Error> {
        let world = engine.members().len();
        let [given, sums, barrier] = &self.0;
        let region = |memory: &Allocation| memory.region().clone();
        let bucket = HashMap::from([(BufferId(0), region(given)), (BufferId(1), region(sums))]);
        let retained = program(world, LEN).retained();
        let load = |program: &Program, buffers, label| {
            engine.load(program, &[buffers], &HashMap::new(), Sending::urgent(0), label, None)
        };
        let done = HashMap::from([(BufferId(0), region(barrier))]);
        Ok([load(&retained, bucket, "bucket")?, load(&program(world, BARRIER_LEN), done, "done")?])
    }

    fn check(&self, step: usize, members: &[Member]) {
        for (at, cell) in self.0[1].region().as_bytes()[..LEN * 4].chunks_exact(4).enumerate() {
            let sum = f32::from_le_bytes([cell[0], cell[1], cell[2], cell[3]]);
            let expected: f32 = members.iter().map(|member| value(at, *member, step)).sum();
            assert!(sum == expected, "step {step} element {at}: {sum} for {expected} of {members:?}");
        }
    }
}

/// The members that each step counts, or as far as the rank lived.
fn train(side: &mut Side<'_>, areas: &Areas, program: fn(usize, usize) -> Program) -> Vec<Vec<Member>> {
    let mut counted = Vec::new();
    let mut programs = areas.load(side.engine, program).unwrap();
    for step in 0..STEPS {
        fill(&areas.0[0], side.own, step);
        let mut members = side.engine.members();
        loop {
            match side.attempt(step, programs) {
                Ok(true) => break,
                Ok(false) | Err(Error::Interrupted { .. }) => {}
                Err(error) => panic!("member {}: {error}", side.own),
            }
            if side.engine.core().death.has_come() {
                return counted;
            }
            side.go_on();
            programs = areas.load(side.engine, program).unwrap();
            if side.committed > step {
                break;
            }
            members = side.engine.members();
        }
        areas.check(step, &members);
        counted.push(members);
    }
    counted
}

/// Whether the victim died, at that edge of its ops.
fn lose(hosts: &[&str; 3], program: fn(usize, usize) -> Program, victim: usize, edge: u32) -> bool {
    let engines = mesh_of(hosts, 2, 1, Some(Lifetime::Engine));
    engines[victim].core().death.after(edge);
    let office = Office::new(3);
    let finished = Mutex::new(0);
    let records = Mutex::new(vec![Vec::new(); 3]);
    each(&engines, |rank, engine| {
        let host = hosts.iter().position(|host| *host == hosts[rank]).unwrap_or(rank) as u32;
        let mut side = Side::new(Member(rank as u64), engine, &office, host);
        let areas = Areas([LEN, LEN, BARRIER_LEN].map(|len| engine.allocate(len * 4).unwrap()));
        let counted = train(&mut side, &areas, program);
        lock(&records)[rank] = counted;
        *lock(&finished) += 1;
        // Whoever has finished may be asked how far it is.
        while *lock(&finished) < 3 && !engine.core().death.has_come() {
            side.listen();
            if side.entered.is_some() {
                side.go_on();
            }
        }
        if engine.core().death.has_come() {
            engine.close();
            lock(&office).handle(coordinator::Event::Unlinked(side.own));
            lock(&office).handle(coordinator::Event::Gone(side.own));
        }
    });
    let died = engines[victim].core().death.has_come();
    each(&engines, |_, engine| engine.close());
    let records = records.into_inner().unwrap();
    let survivors: Vec<_> = (0..3).filter(|rank| *rank != victim || !died).collect();
    for rank in &survivors {
        assert_eq!(records[*rank], records[survivors[0]], "{hosts:?} victim {victim} edge {edge}");
        assert_eq!(records[*rank].len(), STEPS);
    }
    died
}

fn lose_at_each_edge(hosts: [&str; 3], program: fn(usize, usize) -> Program) {
    // Side by side: ranks mostly wait for their listeners to close.
    thread::scope(|scope| {
        for victim in 0..3 {
            scope.spawn(move || {
                let edges = (0..1000).take_while(|&edge| lose(&hosts, program, victim, edge)).count();
                assert!(edges >= 4 * STEPS, "only {edges} edges");
            });
        }
    });
}

/// Replicas would differ after a loss between hosts, or a gradient would count twice or half.
#[test]
fn steps_over_tcp_survive_a_loss_at_each_edge() {
    lose_at_each_edge(["a", "b", "c"], ring_of);
}

/// The same within a host.
#[test]
fn steps_over_shared_memory_survive_a_loss_at_each_edge() {
    lose_at_each_edge(["a", "a", "a"], ring_of);
}

/// The same while all write into all sums.
#[test]
fn steps_in_place_survive_a_loss_at_each_edge() {
    lose_at_each_edge(["a", "a", "a"], in_place_of);
}
