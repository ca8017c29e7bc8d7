//! System calls on sockets, for `sender`. `unsafe` is needed because they take pointers and descriptors.

#![allow(unsafe_code)]

use std::io::{Error, ErrorKind};
use std::time::Duration;

/// How many sockets are looked at after one wait.
const READY_MAX: usize = 64;

#[derive(Clone, Copy)]
pub(crate) enum Event {
    Readable,
    Writable,
}

/// How many bytes were sent; 0 if the socket takes nothing now.
fn count(result: isize) -> Result<usize, Error> {
    let error = Error::last_os_error();
    match usize::try_from(result) {
        Ok(count) => Ok(count),
        Err(_) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        Err(_) => Err(error),
    }
}

fn checked(result: i32) -> Result<i32, Error> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// Sends bytes. `more`: others follow at once, so the system may wait for them to fill a packet.
pub(crate) fn send(socket: i32, bytes: &[u8], more: bool) -> Result<usize, Error> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: `bytes` is borrowed for longer than the call, which only reads it.
    count(unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Sends a region of a file, without a copy. An error if the file ends before `size` bytes are sent.
pub(crate) fn send_file(socket: i32, file: i32, position: i64, size: usize) -> Result<usize, Error> {
    let mut at = position;
    // SAFETY: `at` lives for longer than the call.
    let result = unsafe { libc::sendfile(socket, file, &raw mut at, size) };
    if result == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { count(result) }
}

/// A set of descriptors to wait for.
pub(crate) struct Poll(i32);

impl Poll {
    pub(crate) fn new() -> Result<Self, Error> {
        // SAFETY: no pointer is passed.
        checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Poll)
    }

    pub(crate) fn add(&self, fd: i32, event: Event, number: u64) -> Result<(), Error> {
        let flag = match event {
            Event::Readable => libc::EPOLLIN,
            Event::Writable => libc::EPOLLOUT,
        };
        let mut entry = libc::epoll_event { events: flag as u32, u64: number };
        // SAFETY: `entry` lives for longer than the call.
        checked(unsafe { libc::epoll_ctl(self.0, libc::EPOLL_CTL_ADD, fd, &raw mut entry) }).map(drop)
    }

    pub(crate) fn remove(&self, fd: i32) {
        // SAFETY: no pointer is used by this operation. It fails if the descriptor is not in the set, which is harmless.
        unsafe { libc::epoll_ctl(self.0, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Waits until something is ready, but no longer than `limit`, and puts its numbers into `ready`.
    pub(crate) fn wait(&self, ready: &mut Vec<u64>, limit: Option<Duration>) {
        let limit_ms = limit.map_or(-1, |limit| limit.as_millis() as i32 + 1);
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY_MAX];
        // SAFETY: the array lives for longer than the call, which fills at most its length.
        let count = unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), READY_MAX as i32, limit_ms) };
        ready.clear();
        ready.extend(events.iter().take(usize::try_from(count).unwrap_or(0)).map(|event| event.u64));
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        // SAFETY: nobody else has this descriptor.
        unsafe { libc::close(self.0) };
    }
}

/// A descriptor that becomes readable when it is raised.
pub(crate) struct Signal(i32);

impl Signal {
    pub(crate) fn new() -> Result<Self, Error> {
        // SAFETY: no pointer is passed.
        checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(Signal)
    }

    pub(crate) fn fd(&self) -> i32 {
        self.0
    }

    pub(crate) fn raise(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes are read from `one`. It fails only when the signal is raised already.
        unsafe { libc::write(self.0, (&raw const one).cast(), 8) };
    }

    pub(crate) fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes are written to `count`. It fails only when the signal is not raised.
        unsafe { libc::read(self.0, (&raw mut count).cast(), 8) };
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        // SAFETY: nobody else has this descriptor.
        unsafe { libc::close(self.0) };
    }
}
