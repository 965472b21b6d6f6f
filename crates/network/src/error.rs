//! The faults of a network.

/// Why links and routes are no network, or what one lacks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// No rank.
    #[error("it has no ranks")]
    Empty,
    /// A number of a link is out of range.
    #[error("link `{link}` has a {what} of {value}: it must be {must}")]
    Link {
        /// The link's name.
        link: String,
        /// The number, with its unit.
        what: &'static str,
        /// The given value.
        value: f64,
        /// The range.
        must: &'static str,
    },
    /// A route contradicts the links, the ranks or another route.
    #[error("the route from rank {from} to rank {to} {what}")]
    Route {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// The fault.
        what: &'static str,
    },
    /// No route connects two ranks.
    #[error("there is no route from rank {from} to rank {to}")]
    Missing {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
    },
}
