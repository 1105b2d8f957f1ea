//! The same loops over two bare TCP sockets between two threads: the limit of the machine. No header, no
//! matching, no acknowledgment; sockets don't block and are polled, as the rail does it, each side pinned to
//! its processor. Messages take turns in as much memory as the transport's do: a single one that stays in the
//! cache would be copied faster than any application's.
//!
//! With --listen and --connect the two sides are two processes, which must get the same arguments.
//!
//! A message of no bytes is one of one byte here, for a stream has no empty messages.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use crate::cli::{Measure, PerfArgs};
use crate::exit::{Exit, Failure};
use crate::output::stats::Latency;
use crate::session::Path;

use super::kernel::Load;
use super::pin::Pinned;
use super::report::{Line, Report};
use super::{BUFFER_BYTES, ends, load, round_trips, sizes};

/// Bytes that one read takes at most.
const READ_BYTES: usize = 1 << 20;

/// Measures and prints.
pub fn run(args: &PerfArgs) -> Result<Exit, Failure> {
    let lines = measure(args).map_err(Failure::usage)?;
    if args.run.ends.listen.is_none() {
        Report::new(args, Path::Tcp, false, lines, Vec::new()).print(args.run.json)?;
    }
    Ok(Exit::Ok)
}

fn measure(args: &PerfArgs) -> io::Result<Vec<Line>> {
    if let Some((stream, first)) = ends::bare(args)? {
        return side(args, Socket::over(stream)?, first);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let first = Socket::over(TcpStream::connect(listener.local_addr()?)?)?;
    let second = Socket::over(listener.accept()?.0)?;
    thread::scope(|scope| {
        let other = scope.spawn(|| side(args, second, false));
        let lines = side(args, first, true);
        match other.join() {
            Ok(ended) => ended.and(lines),
            Err(_) => Err(io::Error::other("the other side panicked")),
        }
    })
}

fn side(args: &PerfArgs, mut socket: Socket, first: bool) -> io::Result<Vec<Line>> {
    let _pinned = Pinned::to(usize::from(!first));
    let mut lines = Vec::new();
    for bytes in sizes(args) {
        let places = (BUFFER_BYTES / bytes.max(64)).max(1);
        let mut memory = vec![1; (bytes.max(1) * places) as usize];
        lines.push(if args.measure == Measure::Latency {
            let mut samples = ping_pong(&mut socket, first, (&mut memory, bytes), round_trips(args, bytes))?;
            Line::of_latency(bytes, Latency::of(&mut samples))
        } else {
            let load = load(args, bytes);
            Line::of_stream(bytes, load.messages(), stream(&mut socket, first, &mut memory, &load)?)
        });
    }
    Ok(lines)
}

/// Half round trips in nanoseconds.
fn ping_pong(
    socket: &mut Socket,
    first: bool,
    (memory, bytes): (&mut [u8], u64),
    (warmup, iterations): (u64, u64),
) -> io::Result<Vec<u64>> {
    let mut places = Places { bytes: bytes.max(1) as usize, next: 0 };
    let mut samples = Vec::with_capacity(iterations as usize);
    for number in 0..warmup + iterations {
        let buffer = places.next(memory);
        if first {
            let start = Instant::now();
            socket.write(buffer)?;
            socket.read(buffer)?;
            if number >= warmup {
                samples.push(start.elapsed().as_nanos() as u64 / 2);
            }
        } else {
            socket.read(buffer)?;
            socket.write(buffer)?;
        }
    }
    Ok(samples)
}

/// Seconds for all measured windows, each of which the receiver confirms with a byte.
fn stream(socket: &mut Socket, first: bool, memory: &mut [u8], load: &Load) -> io::Result<f64> {
    let mut start = Instant::now();
    let bytes = load.bytes.max(1) as usize;
    let (mut places, mut at) = (Places { bytes, next: 0 }, 0);
    for round in 0..load.warmup + load.windows {
        if round == load.warmup {
            start = Instant::now();
        }
        if first {
            for _ in 0..load.window {
                socket.write(places.next(memory))?;
            }
            socket.read(&mut [0])?;
        } else {
            let mut left = bytes * load.window as usize;
            while left > 0 {
                let end = (at + left.min(READ_BYTES)).min(memory.len());
                let taken = socket.read_some(&mut memory[at..end])?;
                left -= taken;
                at = (at + taken) % memory.len();
            }
            socket.write(&[1])?;
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

/// The memory of messages, in turn.
struct Places {
    bytes: usize,
    next: usize,
}

impl Places {
    fn next<'m>(&mut self, memory: &'m mut [u8]) -> &'m mut [u8] {
        let at = if self.next + self.bytes <= memory.len() { self.next } else { 0 };
        self.next = at + self.bytes;
        &mut memory[at..self.next]
    }
}

/// A socket that is polled.
struct Socket {
    stream: TcpStream,
}

impl Socket {
    fn over(stream: TcpStream) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Socket { stream })
    }

    fn read_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(into) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    fn read(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let count = self.read_some(into)?;
            into = &mut into[count..];
        }
        Ok(())
    }

    fn write(&mut self, mut from: &[u8]) -> io::Result<()> {
        while !from.is_empty() {
            match self.stream.write(from) {
                Ok(count) => from = &from[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both<R: Send>(body: impl Fn(Socket, bool) -> R + Sync) -> [R; 2] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let first = Socket::over(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        let second = Socket::over(listener.accept().unwrap().0).unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| body(second, false));
            [body(first, true), other.join().unwrap()]
        })
    }

    #[test]
    fn a_ping_pong_has_a_sample_per_measured_round_trip() {
        let [samples, none] =
            both(|mut socket, first| ping_pong(&mut socket, first, (&mut [0; 27], 9), (3, 5)).unwrap());
        assert_eq!((samples.len(), none.len()), (5, 0));
    }

    #[test]
    fn a_stream_moves_every_byte_of_every_window() {
        let load = Load { bytes: 70_000, window: 5, warmup: 1, windows: 3 };
        let left = both(|mut socket, first| {
            stream(&mut socket, first, &mut [7; 140_000], &load).unwrap();
            // Both are in step again: the next byte is the one that is sent now.
            socket.write(&[u8::from(first) + 40]).unwrap();
            let mut byte = [0];
            socket.read(&mut byte).unwrap();
            byte[0]
        });
        assert_eq!(left, [40, 41]);
    }
}
