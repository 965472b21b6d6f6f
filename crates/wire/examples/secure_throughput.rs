//! What encryption and checksums leave of a connection's throughput: messages from a transmitter to a receiver over loopback,
//! in one process, contenders in alternating rounds. Only ratios mean something; that of processor time also holds on a machine
//! that others use too.
//!
//! ```console
//! $ cargo run --release -p hocket-wire --example secure_throughput -- 15
//! ```
//!
//! A second number is a rate in Gbit/s, at which the kernel sends: that of a wire.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use hocket_ids::Rank;
use hocket_kernels::DType;
use hocket_protocol::frame::Data;
use hocket_protocol::why::Why;
use hocket_wire::connection::tls::{Credentials, TlsStream};
use hocket_wire::connection::{Outcome, Outgoing, Receiver, Stream, Transmitter};
use hocket_wire::link::{Arrivals, Cards, Land, Landing, Message, Post};
use hocket_wire::memory::{Allocation, Arena};
use hocket_wire::poll::{Poller, Waker};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a message: a bucket.
const MESSAGE_BYTES: usize = 8 << 20;
/// Content of a full TLS record, and how many are sealed at a time.
const RECORD_BYTES: usize = 1 << 14;
const TURN_RECORDS: usize = 16;
/// Messages of a round.
const MESSAGES: usize = 64;
const DEADLINE: Duration = Duration::from_secs(10);

struct Taker {
    memory: Allocation,
    landed_bytes: usize,
}

impl Arrivals for Taker {
    fn landing(&mut self, data: &Data) -> Result<Landing, String> {
        let region = self.memory.region().sub(data.offset_bytes as usize, data.payload_bytes as usize);
        Ok(Landing { region, land: Land::Store })
    }
    fn landed(&mut self, data: &Data) {
        self.landed_bytes += data.payload_bytes as usize;
    }
    fn posted(&mut self, _: Post) -> Result<(), String> {
        Ok(())
    }
    fn aborted(&mut self, _: Rank, _: Why, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// Both ends of a connection, ready for frames.
fn pair(tls: bool) -> (Stream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let theirs = listener.accept().unwrap().0;
    let (ours, theirs) = if tls {
        let deadline = Instant::now() + DEADLINE;
        let connecting =
            thread::spawn(move || TlsStream::connect(ours, &Credentials::new().unwrap(), deadline));
        let accepted = TlsStream::accept(theirs, &Credentials::new().unwrap(), deadline).unwrap();
        (Stream::Tls(Box::new(connecting.join().unwrap().unwrap())), Stream::Tls(Box::new(accepted)))
    } else {
        (Stream::Tcp(ours), Stream::Tcp(theirs))
    };
    ours.set_nonblocking().unwrap();
    theirs.set_nonblocking().unwrap();
    (ours, theirs)
}

/// The kernel sends no faster than so many bytes per second.
fn pace(stream: &Stream, byte_per_s: u64) {
    let value = std::ptr::from_ref(&byte_per_s).cast();
    // SAFETY: the descriptor is open, and the option's value is a `u64` that outlives the call.
    let set = unsafe {
        libc::setsockopt(stream.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, value, 8)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn send(mut stream: Stream, checksums: bool) -> Stream {
    let memory = Arena::new(0).unwrap().allocate(MESSAGE_BYTES).unwrap();
    memory.region().as_bytes_mut().fill(7);
    let outgoing = Mutex::new(Outgoing::new(checksums, 1, 1));
    for _ in 0..MESSAGES {
        let (region, dtype) = (memory.region().clone(), DType::F32);
        let numbers = (0, 0, 0, 0, 0);
        let (priority, program, instance, op, peer_op) = numbers;
        let wire = dtype;
        outgoing.lock().unwrap().message(Message {
            cards: Cards::ALL,
            priority,
            program,
            instance,
            op,
            peer_op,
            region,
            dtype,
            wire,
        });
    }
    let waker = Waker::new().unwrap();
    let poller = Poller::new(&waker).unwrap();
    poller.add(&stream, 0, 0).unwrap();
    let mut transmitter = Transmitter::new(0, None);
    loop {
        match transmitter.transmit(&mut stream, &outgoing, 1 << 20, |_| ()).unwrap() {
            Outcome::Idle => return stream,
            Outcome::More | Outcome::NotBefore(_) => {}
            Outcome::Full => poller.wait(DEADLINE, &waker, |_| ()).unwrap(),
        }
    }
}

/// Seconds and processor seconds of one round.
fn round(tls: bool, checksums: bool, byte_per_s: Option<u64>) -> (f64, f64) {
    let (ours, mut theirs) = pair(tls);
    if let Some(byte_per_s) = byte_per_s {
        pace(&ours, byte_per_s);
    }
    let memory = Arena::new(0).unwrap().allocate(MESSAGE_BYTES).unwrap();
    memory.region().as_bytes_mut().fill(1);
    let mut taker = Taker { memory, landed_bytes: 0 };
    let waker = Waker::new().unwrap();
    let poller = Poller::new(&waker).unwrap();
    poller.add(&theirs, 0, 0).unwrap();
    let mut receiver = Receiver::new(checksums, 1);
    let (started, before_s) = (Instant::now(), processor_s());
    let sending = thread::spawn(move || send(ours, checksums));
    while taker.landed_bytes < MESSAGES * MESSAGE_BYTES {
        let more = receiver.receive(&mut theirs, &mut taker, 1 << 20).unwrap();
        if !more && taker.landed_bytes < MESSAGES * MESSAGE_BYTES {
            poller.wait(DEADLINE, &waker, |_| ()).unwrap();
        }
    }
    let took_s = started.elapsed().as_secs_f64();
    drop(sending.join().unwrap());
    (took_s, processor_s() - before_s)
}

/// What all threads of this process have used.
fn processor_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds of the cipher alone over a message, record by record as TLS does it: to seal it, and to open it.
fn cipher() -> (f64, f64) {
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).unwrap());
    let nonce = || Nonce::assume_unique_for_key([0; 12]);
    let mut message = vec![7; MESSAGE_BYTES];
    let mut records = vec![([0; RECORD_BYTES], [0; 16]); TURN_RECORDS];
    let (mut sealing_s, mut opening_s) = (0., 0.);
    for turn in message.chunks_exact_mut(TURN_RECORDS * RECORD_BYTES) {
        let started = Instant::now();
        for (plain, (sealed, tag)) in turn.chunks_exact(RECORD_BYTES).zip(&mut records) {
            key.seal_out_of_place_scatter(nonce(), Aad::empty(), plain, sealed, &[], tag).unwrap();
        }
        let sealed = Instant::now();
        for (plain, (sealed, tag)) in turn.chunks_exact_mut(RECORD_BYTES).zip(&records) {
            key.open_separate_gather(nonce(), Aad::empty(), sealed, tag, plain).unwrap();
        }
        sealing_s += sealed.duration_since(started).as_secs_f64();
        opening_s += sealed.elapsed().as_secs_f64();
    }
    (sealing_s, opening_s)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(9, |rounds| rounds.parse().unwrap());
    let byte_per_s = std::env::args().nth(2).map(|rate| (rate.parse::<f64>().unwrap() * 1e9 / 8.) as u64);
    let contenders =
        [("plain", false, false), ("checksums", false, true), ("TLS", true, false), ("both", true, true)];
    let mut series = vec![Vec::new(); contenders.len()];
    for at in 0..rounds {
        for (series, &(_, tls, checksums)) in series.iter_mut().zip(&contenders) {
            series.push(round(tls, checksums, byte_per_s));
        }
        println!("round {} of {rounds}", at + 1);
    }
    let ciphers: Vec<_> = (0..rounds).map(|_| cipher()).collect();
    let bytes = (MESSAGES * MESSAGE_BYTES) as f64;
    for (values, (name, ..)) in series.iter().zip(contenders) {
        let of_plain = |pick: fn(&(f64, f64)) -> f64| {
            median(values.iter().zip(&series[0]).map(|(ours, plain)| pick(plain) / pick(ours)).collect())
        };
        let gb_per_s = bytes / median(values.iter().map(|round| round.0).collect()) / 1e9;
        let ns_per_byte = median(values.iter().map(|round| round.1).collect()) / bytes * 1e9;
        println!(
            "{name:>9}: {gb_per_s:5.2} GB/s, {:.2} of plain; {ns_per_byte:.3} ns of processor a byte, {:.2} of plain",
            of_plain(|round| round.0),
            of_plain(|round| round.1),
        );
    }
    let ns_per_byte = |pick: fn(&(f64, f64)) -> f64| {
        median(ciphers.iter().map(pick).collect()) / MESSAGE_BYTES as f64 * 1e9
    };
    let (sealing, opening) = (ns_per_byte(|both| both.0), ns_per_byte(|both| both.1));
    let plain = median(series[0].iter().map(|round| round.1).collect()) / bytes * 1e9;
    println!(
        "the cipher alone: {sealing:.3} ns a byte to seal, {opening:.3} to open; beside what plain needs, it leaves at most \
         {:.2} of plain per processor time",
        plain / (plain + sealing + opening),
    );
}
