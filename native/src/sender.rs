//! A thread that sends answers with regions of files, piece by piece as their sockets take them:
//! `ottla.net.region_sender`.
//!
//! A job is the rest of an answer, after the broker's loop has filled the socket once. The thread waits until a socket
//! takes more, sends, and reports when a job is done. It never takes the GIL.
//!
//! Laws:
//! - Descriptors are borrowed. They stay open until the job is reported, or `cancel` has returned true. It never waits
//!   for a system call in progress, which may read from a slow disk: then it returns false, and the job is reported.
//! - One system call sends at most `TURN_SIZE` bytes, then other sockets get a turn.
//! - A job fails alone: its error is reported, and the thread goes on.

use std::collections::{HashMap, VecDeque};
use std::io::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use pyo3::prelude::*;

use crate::sockets::{self, Event, Poll, Signal};

const TURN_SIZE: usize = 256 * 1024;
const STOP: u64 = 0; // jobs begin at 1

/// A piece of an answer: bytes, or a region of a file with its descriptor, position and size.
#[derive(FromPyObject)]
enum Piece {
    Region(i32, i64, usize),
    Bytes(Vec<u8>),
}

impl Piece {
    fn size(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Region(_, _, size) => *size,
        }
    }
}

struct Job {
    socket: i32,
    left: AtomicUsize, // bytes
    cancelled: AtomicBool,
    rest: Mutex<Rest>,
}

struct Rest {
    pieces: VecDeque<Piece>,
    sent: usize, // of the first piece
    ended: bool,
}

struct Shared {
    poll: Poll,
    stop: Signal,
    finished: Signal,
    jobs: Mutex<HashMap<u64, Arc<Job>>>,
    ends: Mutex<Vec<(u64, i32)>>, // jobs that have ended, with the system's error or 0
}

#[pyclass(frozen)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
    last: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: u32, // a forked process has no such thread
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl Sender {
    #[new]
    fn start() -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            poll: Poll::new()?,
            stop: Signal::new()?,
            finished: Signal::new()?,
            jobs: Mutex::default(),
            ends: Mutex::default(),
        });
        shared.poll.add(shared.stop.fd(), Event::Readable, STOP)?;
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("ottla-sender".into()).spawn(move || own.run())?;
        let (last, process) = (AtomicU64::new(STOP), std::process::id());
        Ok(Sender { shared, last, thread: Mutex::new(Some(thread)), process })
    }

    /// Becomes readable when a job has ended.
    fn fileno(&self) -> i32 {
        self.shared.finished.fd()
    }

    /// Sends these pieces, one after the other. Returns the number of the job.
    fn send(&self, socket: i32, pieces: Vec<Piece>) -> Result<u64, Error> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let left = AtomicUsize::new(pieces.iter().map(Piece::size).sum());
        let rest = Mutex::new(Rest { pieces: pieces.into(), sent: 0, ended: false });
        let job = Job { socket, left, cancelled: AtomicBool::new(false), rest };
        lock(&self.shared.jobs).insert(number, Arc::new(job));
        if let Err(error) = self.shared.poll.add(socket, Event::Writable, number) {
            lock(&self.shared.jobs).remove(&number);
            return Err(error);
        }
        Ok(number)
    }

    /// How many bytes of a job are not sent yet.
    fn left(&self, number: u64) -> usize {
        lock(&self.shared.jobs).get(&number).map_or(0, |job| job.left.load(Ordering::Relaxed))
    }

    /// Ends a job, unless it has ended. True: the thread does not use its descriptors any more. False: it still does, and
    /// reports the job as soon as it does not.
    fn cancel(&self, number: u64) -> bool {
        let Some(job) = lock(&self.shared.jobs).get(&number).map(Arc::clone) else {
            return true;
        };
        job.cancelled.store(true, Ordering::SeqCst);
        let Ok(mut rest) = job.rest.try_lock() else {
            return false;
        };
        if !rest.ended {
            rest.end(&self.shared.poll, job.socket);
            lock(&self.shared.jobs).remove(&number);
        }
        true
    }

    /// The jobs that have ended since the last call, with the system's error or 0.
    fn take_ends(&self) -> Vec<(u64, i32)> {
        self.shared.finished.clear();
        std::mem::take(&mut *lock(&self.shared.ends))
    }

    /// Ends the thread. Jobs that have not ended stay unfinished.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.join());
    }
}

impl Sender {
    fn join(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|_| self.process == std::process::id()) {
            self.shared.stop.raise();
            let _ = thread.join();
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    fn run(&self) {
        let mut ready = Vec::new();
        loop {
            self.poll.wait(&mut ready);
            for &number in &ready {
                if number == STOP {
                    return;
                }
                self.turn(number);
            }
        }
    }

    /// Sends some more of a job.
    fn turn(&self, number: u64) {
        let Some(job) = lock(&self.jobs).get(&number).map(Arc::clone) else {
            return; // cancelled
        };
        self.go_on(number, &job, |rest| rest.send_some(&job));
        if job.cancelled.load(Ordering::SeqCst) {
            self.go_on(number, &job, |_| Ok(true)); // it was cancelled meanwhile
        }
    }

    /// Works on a job. If it is done, or this fails, ends and reports it.
    fn go_on(&self, number: u64, job: &Job, work: impl FnOnce(&mut Rest) -> Result<bool, Error>) {
        let mut rest = lock(&job.rest);
        if rest.ended {
            return;
        }
        let error = match work(&mut rest) {
            Ok(false) => return,
            Ok(true) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        };
        rest.end(&self.poll, job.socket);
        lock(&self.jobs).remove(&number);
        lock(&self.ends).push((number, error));
        self.finished.raise();
    }
}

impl Rest {
    fn end(&mut self, poll: &Poll, socket: i32) {
        self.ended = true;
        poll.remove(socket);
    }

    /// Sends until the socket is full or the turn is over (false), or everything is sent (true).
    fn send_some(&mut self, job: &Job) -> Result<bool, Error> {
        let mut turn = TURN_SIZE;
        while let Some(piece) = self.pieces.front() {
            let wanted = (piece.size() - self.sent).min(turn);
            if wanted > 0 {
                let count = match *piece {
                    Piece::Bytes(ref bytes) => {
                        let part = &bytes[self.sent..self.sent + wanted];
                        sockets::send(job.socket, part, self.pieces.len() > 1)?
                    }
                    Piece::Region(file, position, _) => {
                        sockets::send_file(job.socket, file, position + self.sent as i64, wanted)?
                    }
                };
                self.sent += count;
                turn -= count;
                job.left.fetch_sub(count, Ordering::Relaxed);
                if count < wanted {
                    return Ok(false);
                }
            }
            if self.sent == piece.size() {
                self.pieces.pop_front();
                self.sent = 0;
            } else if turn == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
