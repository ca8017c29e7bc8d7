//! A second thread that shares the work of a call, if it is free: `share`.
//!
//! A broker runs on one thread. Decompressing and writing the batches of a large request keeps it busy while other
//! processors may be idle, so that work is shared with a helper thread. The caller does not depend on it: it works
//! through the items itself, and takes back its offer if the helper has not begun by then. So a busy machine costs only
//! the wake-up.
//!
//! `unsafe` is needed once, because a thread that lives on cannot borrow: the caller waits for it instead.

#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

type Work<'a> = dyn Fn() + Sync + 'a;

enum Slot {
    Free,
    Offered(&'static Work<'static>),
    Running,
    Panicked,
}

struct Helper {
    process: u32, // a forked process has no such thread
    slot: Mutex<Slot>,
    offered: Condvar,
    finished: Condvar,
}

static HELPER: OnceLock<Option<&'static Helper>> = OnceLock::new();

/// Calls `work` with every number below `count`, each once, on this thread and perhaps on the helper. Returns when all
/// calls have returned. A panic of any of them reaches the caller.
pub(crate) fn share(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let some = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            work(number);
        }
    };
    match helper() {
        Some(helper) if count > 1 => helper.join(&some),
        _ => some(),
    }
}

fn helper() -> Option<&'static Helper> {
    let helper = (*HELPER.get_or_init(start))?;
    (helper.process == std::process::id()).then_some(helper)
}

fn start() -> Option<&'static Helper> {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return None;
    }
    let helper: &'static Helper = Box::leak(Box::new(Helper {
        process: std::process::id(),
        slot: Mutex::new(Slot::Free),
        offered: Condvar::new(),
        finished: Condvar::new(),
    }));
    thread::Builder::new().name("ottla-helper".into()).spawn(|| helper.run()).ok().map(|_| helper)
}

impl Helper {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: do what is offered, for ever.
    fn run(&self) {
        let mut slot = self.lock();
        loop {
            if let Slot::Offered(work) = *slot {
                *slot = Slot::Running;
                drop(slot);
                let done = catch_unwind(AssertUnwindSafe(work));
                slot = self.lock();
                *slot = if done.is_ok() { Slot::Free } else { Slot::Panicked };
                self.finished.notify_all();
            } else {
                slot = self.offered.wait(slot).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Runs `work` here, and at the same time on the helper unless it is busy.
    fn join(&self, work: &Work<'_>) {
        let mut slot = self.lock();
        if !matches!(*slot, Slot::Free) {
            drop(slot);
            return work();
        }
        // SAFETY: `Waiting` is dropped before `work` is, even by a panic, and then nobody has this reference any more.
        *slot = Slot::Offered(unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) });
        drop(slot);
        self.offered.notify_one();
        let waiting = Waiting(self);
        work();
        drop(waiting);
    }
}

/// Takes the offer back when it is dropped, or waits until the helper has finished.
struct Waiting<'a>(&'a Helper);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut slot = self.0.lock();
        while matches!(*slot, Slot::Running) {
            slot = self.0.finished.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        let panicked = matches!(*slot, Slot::Panicked);
        *slot = Slot::Free;
        drop(slot);
        assert!(!panicked || thread::panicking(), "the helper panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    #[test]
    fn each_number_is_worked_on_once() {
        for count in [0, 1, 2, 3, 1000] {
            let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            share(count, |number| {
                seen[number].fetch_add(1, Ordering::Relaxed);
            });
            assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn many_callers_at_once_each_get_their_own_work_done() {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for count in 0..200_u64 {
                        let sum = AtomicU64::new(0);
                        share(count as usize, |number| {
                            sum.fetch_add(number as u64, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), count * count.saturating_sub(1) / 2);
                    }
                });
            }
        });
    }

    #[test]
    fn the_helper_takes_part() {
        let here = thread::current().id();
        let deadline = Instant::now() + Duration::from_secs(60);
        let others = AtomicUsize::new(0);
        while helper().is_some() && others.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < deadline, "the helper never worked");
            share(2, |_| {
                if thread::current().id() != here {
                    others.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(1));
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_next_call_works() {
        for _ in 0..20 {
            assert!(catch_unwind(|| share(8, |number| assert!(number != 5))).is_err());
            let sum = AtomicUsize::new(0);
            share(8, |number| {
                sum.fetch_add(number, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 28);
        }
    }
}
