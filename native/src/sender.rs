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
//! - When the system has no memory for sockets, they are reported as ready, but take nothing. Such a job rests, longer
//!   each time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::sockets::{self, Event, Poll, Signal};

const TURN_SIZE: usize = 256 * 1024;
const STOP: u64 = 0; // jobs begin at 1
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(256); // Linux lets a blocking call wait about as long for memory

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
    sent: usize,     // of the first piece
    pause: Duration, // the next time that the socket is ready but takes nothing
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
        let rest = Mutex::new(Rest { pieces: pieces.into(), sent: 0, pause: REST_MIN, ended: false });
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
        job.cancelled.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // either we get the lock, or the thread finds the job cancelled after it
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
        let Some(thread) = lock(&self.thread).take() else {
            return;
        };
        if self.process == std::process::id() {
            self.shared.stop.raise();
            let _ = thread.join();
        } else {
            std::mem::forget(thread); // its memory may belong to another thread by now
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
        let mut resting = BinaryHeap::new(); // until when, and jobs
        loop {
            let now = Instant::now();
            while let Some(&Reverse((_, number))) = resting.peek().filter(|Reverse((until, _))| *until <= now) {
                resting.pop();
                self.wake(number);
            }
            self.poll.wait(&mut ready, resting.peek().map(|Reverse((until, _))| *until - now));
            for &number in &ready {
                if number == STOP {
                    return;
                }
                if let Some(pause) = self.turn(number) {
                    resting.push(Reverse((Instant::now() + pause, number)));
                }
            }
        }
    }

    /// Sends some more of a job. Returns how long it has to rest, if its socket took nothing.
    fn turn(&self, number: u64) -> Option<Duration> {
        let mut pause = None;
        self.work(number, |job, rest| {
            let before = job.left.load(Ordering::Relaxed);
            let done = rest.send_some(job)?;
            if done || job.left.load(Ordering::Relaxed) < before {
                rest.pause = REST_MIN;
            } else {
                pause = Some(rest.pause);
                rest.pause = (2 * rest.pause).min(REST_MAX);
                self.poll.remove(job.socket);
            }
            Ok(done)
        });
        pause
    }

    fn wake(&self, number: u64) {
        self.work(number, |job, _| self.poll.add(job.socket, Event::Writable, number).map(|()| false));
    }

    fn work(&self, number: u64, step: impl FnOnce(&Job, &mut Rest) -> Result<bool, Error>) {
        let Some(job) = lock(&self.jobs).get(&number).map(Arc::clone) else {
            return; // cancelled
        };
        self.go_on(number, &job, |rest| step(&job, rest));
        fence(Ordering::SeqCst); // see `cancel`
        if job.cancelled.load(Ordering::Relaxed) {
            self.go_on(number, &job, |_| Ok(true)); // it was cancelled meanwhile
        }
    }

    /// Works on a job. If it is done, or this fails, ends and reports it.
    fn go_on(&self, number: u64, job: &Job, step: impl FnOnce(&mut Rest) -> Result<bool, Error>) {
        let mut rest = lock(&job.rest);
        if rest.ended {
            return;
        }
        let error = match step(&mut rest) {
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
