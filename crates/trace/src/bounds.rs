//! What of a run a file keeps: some of its steps, and so many bytes.

/// Limit of records in a file: 4 GiB, more than anyone can analyse and less than fills a disk unnoticed.
const RECORDS_MAX: u64 = 1 << 26;

/// The part of a run that is recorded; by default all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub first: u32,
    /// The first step after it that is not recorded any more, above `first`; `None`: there is none.
    pub stop: Option<u32>,
    /// Bytes of the file at most, with its header.
    pub bytes_max: Option<u64>,
}

impl Bounds {
    pub fn has(&self, step: u32) -> bool {
        step >= self.first && self.stop.is_none_or(|stop| step < stop)
    }

    /// How many records of so many bytes the file may have, behind its header.
    pub(crate) fn records_max(&self, header_bytes: usize, record_bytes: usize) -> u64 {
        let asked =
            self.bytes_max.map(|bytes| bytes.saturating_sub(header_bytes as u64) / record_bytes as u64);
        asked.map_or(RECORDS_MAX, |records| records.min(RECORDS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Broken: a trace would have one step more or less than was asked for, or be larger than it may.
    #[test]
    fn steps_are_those_of_a_slice_and_bytes_are_of_the_whole_file() {
        let few = Bounds { first: 3, stop: Some(5), bytes_max: Some(64 + 2 * 64 + 63) };
        assert_eq!((0..8).filter(|step| few.has(*step)).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(few.records_max(64, 64), 2);
        assert_eq!(Bounds { bytes_max: Some(10), ..few }.records_max(64, 64), 0);
        let all = Bounds::default();
        assert!(all.has(0) && all.has(u32::MAX));
        assert_eq!(all.records_max(64, 64), RECORDS_MAX);
        assert_eq!(Bounds { bytes_max: Some(u64::MAX), ..all }.records_max(64, 64), RECORDS_MAX);
    }
}
