//! Limits the unacknowledged bytes of a connection, or leaves the limit to the system.

use hocket_protocol::backlog::Buffer;
use socket2::SockRef;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets the send buffer. The system reserves twice the requested size for headers of its own, which take about a fifth.
/// Where it grants less than requested, it keeps the choice.
pub fn set(socket: BorrowedFd<'_>, buffer: Buffer) -> io::Result<()> {
    let Buffer::Bytes(bytes) = buffer else { return unlock(socket) };
    let asked = usize::try_from(bytes / 8 * 5).unwrap_or(usize::MAX).min(i32::MAX as usize / 2);
    let reference = SockRef::from(&socket);
    reference.set_send_buffer_size(asked)?;
    if reference.send_buffer_size()? < 2 * asked { unlock(socket) } else { Ok(()) }
}

/// Lets the system choose the size again (`SO_BUF_LOCK`, Linux 5.17).
fn unlock(socket: BorrowedFd<'_>) -> io::Result<()> {
    let nothing: libc::c_int = 0;
    // SAFETY: the kernel reads one `c_int` from `nothing`, which outlives the call; the descriptor is borrowed for it.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUF_LOCK,
            (&raw const nothing).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn locked(socket: BorrowedFd<'_>) -> io::Result<libc::c_int> {
        let (mut value, mut length) = (-1, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the kernel writes one `c_int`; both places outlive the call.
        let status = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_BUF_LOCK,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        if status == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
    }

    /// A connection would be held to a size for good, or to a size that nobody requested.
    #[test]
    fn a_buffer_is_bounded_and_given_back() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        let (mut far, _) = listener.accept()?;
        set(near.as_fd(), Buffer::Bytes(128 * 1024))?;
        assert_eq!(SockRef::from(&near).send_buffer_size()?, 160 * 1024);
        assert_eq!(locked(near.as_fd())?, 1);
        set(near.as_fd(), Buffer::System)?;
        assert_eq!(locked(near.as_fd())?, 0);
        // More than any system grants: its own choice is better than the most that it grants.
        set(near.as_fd(), Buffer::Bytes(1 << 40))?;
        assert_eq!(locked(near.as_fd())?, 0);
        set(near.as_fd(), Buffer::Bytes(128 * 1024))?;
        let writer = std::thread::spawn(move || near.write_all(&vec![7; 8 << 20]));
        let mut came = vec![0; 8 << 20];
        far.read_exact(&mut came)?;
        assert!(came.iter().all(|&byte| byte == 7));
        writer.join().map_err(|_| io::ErrorKind::Other)?
    }
}
