//! Overlap of slices: whether others may read a member's contribution while that member writes its results.

use hocket_wire::shm::reach::address;
use std::ops::Range;

/// A slice's place in this process.
pub fn place(bytes: &[u8]) -> Range<u64> {
    let start = address(bytes.as_ptr());
    start..start + bytes.len() as u64
}

/// The range of all places, if there are no gaps between them.
pub fn joined(places: &[Range<u64>]) -> Option<Range<u64>> {
    let start = places.iter().map(|place| place.start).min()?;
    let end = places.iter().map(|place| place.end).max()?;
    let filled: u64 = places.iter().map(|place| place.end - place.start).sum();
    (filled == end - start).then_some(start..end)
}

/// Whether no output overlaps an input. `outputs[own]`, the destination of our own input, may be that input itself.
pub fn are_apart(inputs: &[Range<u64>], outputs: &[Option<Range<u64>>], own: usize) -> bool {
    outputs.iter().enumerate().all(|(at, output)| {
        let Some(output) = output else { return true };
        let meets = |input: &&Range<u64>| input.start < output.end && output.start < input.end;
        inputs.iter().filter(meets).all(|input| at == own && input == output)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Others would read bytes that we have overwritten already.
    #[test]
    fn only_an_input_that_stays_in_its_place_is_apart() {
        let outputs = [Some(0..10), Some(10..20), None, Some(30..40)];
        assert!(are_apart(&[20..30, 40..50], &outputs, 1));
        assert!(are_apart(&[10..20, 20..20], &outputs, 1), "all_gather in place");
        assert!(!are_apart(&[10..20, 20..20], &outputs, 0), "another's place");
        assert!(!are_apart(&[11..20, 20..20], &outputs, 1), "not where it stays");
        assert!(!are_apart(&[20..31, 31..31], &outputs, 1));
    }

    /// Memory between two tensors must not be exposed.
    #[test]
    fn only_neighbouring_pieces_are_joined() {
        assert_eq!(joined(&[8..16, 0..8, 16..16]), Some(0..16));
        assert_eq!(joined(&[8..16, 0..7]), None);
        assert_eq!(joined(&[]), None);
    }
}
