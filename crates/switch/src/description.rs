//! The text that describes a network to the program `hocket-switch`: one thing per line, a keyword and its values.
//!
//! ```text
//! queue_s 0.05
//! reorder false
//! seed 7
//! link 125000000          byte/s of the next link, or `unlimited`
//! way 0.001 0 0.01 4,7,1  latency and mean jitter in seconds, share lost, links crossed (`-`: none)
//! slots 512               sums that each rack's switch holds at a time; without it, nothing is summed
//! rack 0 0.0005           of the next port, and the latency to its switch in seconds
//! ```
//!
//! Links and ways are numbered in the order of their lines. `python/hocket/tools/testbed/switched.py` writes this form.

use crate::network::{Network, Summing, WayRule};
use std::str::FromStr;
use thiserror::Error;

/// Why a text describes no network.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line} of the switch's description, `{text}`: {why}")]
pub struct DescriptionError {
    pub line: usize,
    pub text: String,
    pub why: &'static str,
}

/// The network of `ports` hosts that a text describes; no frame is held beyond `held_bytes_max`.
///
/// Numbers are parsed, not judged: [`Switch::new`](crate::Switch::new) refuses what cannot be emulated.
pub fn parse(text: &str, ports: usize, held_bytes_max: usize) -> Result<Network, DescriptionError> {
    let mut network = Network {
        ports,
        links: Vec::new(),
        ways: Vec::new(),
        queue_s: 0.0,
        reorder: false,
        seed: 0,
        held_bytes_max,
        summing: None,
    };
    for (at, line) in text.lines().enumerate() {
        add(&mut network, line).map_err(|why| DescriptionError {
            line: at + 1,
            text: line.to_owned(),
            why,
        })?;
    }
    Ok(network)
}

fn add(network: &mut Network, line: &str) -> Result<(), &'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["queue_s", value] => network.queue_s = number(value)?,
        ["reorder", value] => network.reorder = number(value)?,
        ["seed", value] => network.seed = number(value)?,
        ["link", "unlimited"] => network.links.push(None),
        ["link", byte_per_s] => network.links.push(Some(number(byte_per_s)?)),
        ["way", latency_s, jitter_s, loss, links] => network.ways.push(WayRule {
            links: crossed(links)?,
            latency_s: number(latency_s)?,
            jitter_s: number(jitter_s)?,
            loss: number(loss)?,
        }),
        ["slots", value] => summing(network).slots = number(value)?,
        ["rack", rack, latency_s] => summing(network).ports.push((number(rack)?, number(latency_s)?)),
        _ => return Err("no keyword with that many values"),
    }
    Ok(())
}

fn summing(network: &mut Network) -> &mut Summing {
    network.summing.get_or_insert_default()
}

fn number<T: FromStr>(word: &str) -> Result<T, &'static str> {
    word.parse().map_err(|_| "a value that is not of its type")
}

fn crossed(word: &str) -> Result<Vec<usize>, &'static str> {
    if word == "-" {
        return Ok(Vec::new());
    }
    word.split(',').map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another network would be emulated than the file says.
    #[test]
    fn what_is_written_is_parsed() {
        let text = "queue_s 0.05\nreorder true\nseed 7\nlink 1e6\nlink unlimited\nway 0.001 0 0.01 1,0\nway 0 2e-5 0.0 -\n";
        let network = parse(text, 2, 99).unwrap();
        assert_eq!((network.ports, network.queue_s, network.reorder), (2, 0.05, true));
        assert_eq!((network.seed, network.held_bytes_max), (7, 99));
        assert_eq!(network.links, [Some(1e6), None]);
        let first = WayRule { links: vec![1, 0], latency_s: 1e-3, jitter_s: 0.0, loss: 0.01 };
        let second = WayRule { links: vec![], latency_s: 0.0, jitter_s: 2e-5, loss: 0.0 };
        assert_eq!(network.ways, [first, second]);
        assert_eq!(network.summing, None);
        let summing = parse("slots 8\nrack 1 0.5\nrack 0 0\n", 2, 0).unwrap().summing;
        assert_eq!(summing, Some(Summing { slots: 8, ports: vec![(1, 0.5), (0, 0.0)] }));
    }

    /// A description of another version would be emulated in part.
    #[test]
    fn other_lines_are_refused() {
        for line in ["", "link", "link x", "way 0 0 0", "way 0 0 0 a", "seed -1", "reorder 1", "colour red"] {
            let text = format!("seed 1\n{line}\n");
            let error = parse(&text, 1, 0).unwrap_err();
            assert_eq!((error.line, error.text.as_str()), (2, line));
        }
    }
}
