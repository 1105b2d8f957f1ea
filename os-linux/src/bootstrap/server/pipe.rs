//! A child's output, cut into lines.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// Longest line that is held; a longer one is handed on in parts.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// The reading end of a child's stdout or stderr, in non-blocking mode.
#[derive(Debug)]
pub(super) struct LinePipe {
    fd: OwnedFd,
    bytes: Vec<u8>,
}

impl LinePipe {
    /// Takes a pipe's reading end.
    pub(super) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(LinePipe { fd, bytes: Vec::new() })
    }

    /// Reads once and hands out whole lines, without their ends; `false`: the writers have gone.
    pub(super) fn read(&mut self, mut line: impl FnMut(String)) -> bool {
        let mut chunk = [0; 4096];
        match rustix::io::read(&self.fd, &mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.bytes.extend_from_slice(&chunk[..count]);
                self.cut(&mut line);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Reads the available data (bounded, as a grandchild may write on) and hands out the
    /// unfinished line too.
    pub(super) fn drain(mut self, mut line: impl FnMut(String)) {
        const DRAINED_BYTES_MAX: usize = 1 << 20;
        let mut drained = 0;
        let mut chunk = [0; 4096];
        while drained < DRAINED_BYTES_MAX {
            match rustix::io::read(&self.fd, &mut chunk) {
                Ok(count) if count > 0 => {
                    drained += count;
                    self.bytes.extend_from_slice(&chunk[..count]);
                    self.cut(&mut line);
                }
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
        if !self.bytes.is_empty() {
            line(String::from_utf8_lossy(&self.bytes).into_owned());
        }
    }

    fn cut(&mut self, line: &mut impl FnMut(String)) {
        let mut start = 0;
        while let Some(length) = self.bytes[start..].iter().position(|byte| *byte == b'\n') {
            line(String::from_utf8_lossy(&self.bytes[start..start + length]).into_owned());
            start += length + 1;
        }
        self.bytes.drain(..start);
        if self.bytes.len() >= LINE_BYTES_MAX {
            line(String::from_utf8_lossy(&self.bytes).into_owned());
            self.bytes.clear();
        }
    }
}

impl AsFd for LinePipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (LinePipe, OwnedFd) {
        let (reading, writing) = rustix::pipe::pipe().unwrap();
        (LinePipe::new(reading).unwrap(), writing)
    }

    #[test]
    fn pipe_lines_are_whole_and_the_rest_is_read_at_the_end() {
        let (mut pipe, writing) = pipe();
        let mut lines = Vec::new();
        assert!(pipe.read(|line| lines.push(line)));
        rustix::io::write(&writing, b"one\ntw").unwrap();
        assert!(pipe.read(|line| lines.push(line)));
        assert_eq!(lines, ["one"]);
        rustix::io::write(&writing, b"o\n\nthr").unwrap();
        assert!(pipe.read(|line| lines.push(line)));
        assert_eq!(lines, ["one", "two", ""]);
        drop(writing);
        pipe.drain(|line| lines.push(line));
        assert_eq!(lines, ["one", "two", "", "thr"]);
    }

    #[test]
    fn endless_line_is_limited_in_length() {
        let (mut pipe, writing) = pipe();
        let mut lines = Vec::new();
        for _ in 0..5 {
            rustix::io::write(&writing, &[b'x'; 4096]).unwrap();
            assert!(pipe.read(|line| lines.push(line)));
        }
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].len(), LINE_BYTES_MAX);
        drop(writing);
        assert!(!pipe.read(|line| lines.push(line)));
    }
}
