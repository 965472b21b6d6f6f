//! The last frame on connections that no I/O thread serves yet: why the rank gives up before its mesh is complete.

use super::Stream;
use hocket_ids::Rank;
use hocket_protocol::checksum::seal;
use hocket_protocol::frame::{ABORT_BYTES_MAX, Frame};
use hocket_protocol::why::Why;
use std::io::Write;

/// Tells the rank at the other end of each of `streams` why we, `own`, close them; `checksums`: whether the job's
/// frames between hosts carry one. A frame fits the buffer of a fresh connection; a peer that it does not reach sees
/// only the end.
pub fn give_up(
    streams: impl IntoIterator<Item = Stream>,
    checksums: bool,
    (own, why): (Rank, Why),
    reason: &str,
) {
    let text: String = reason.chars().take(ABORT_BYTES_MAX / 4).collect();
    let frame = Frame::Abort { rank: own, why, payload_bytes: text.len() as u32 };
    for mut stream in streams {
        let mut header = frame.encode();
        if checksums && !matches!(stream, Stream::Unix(_)) {
            seal(&mut header, text.as_bytes());
        }
        let told = stream.write_all(&[&header[..], text.as_bytes()].concat()).and_then(|()| stream.flush());
        drop(told.and_then(|()| stream.shutdown_write()));
    }
}
