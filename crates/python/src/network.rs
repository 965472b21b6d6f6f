//! Tables of paths as routes of a network.

use hocket_network::Route;

/// `starts[from * world + to]`: where the links from `from` to `to` begin in `crossed`; pairs without links have no route.
pub fn routes(
    world: usize,
    starts: &[u32],
    crossed: &[u32],
    latency_s: &[f64],
) -> Result<Vec<Route>, String> {
    let pairs = world * world;
    if starts.len() != pairs + 1 || latency_s.len() != pairs {
        return Err("the tables are not of as many pairs as there are ranks".into());
    }
    let mut routes = Vec::new();
    for pair in 0..pairs {
        let Some(links) = crossed.get(starts[pair] as usize..starts[pair + 1] as usize) else {
            return Err("the paths do not follow one another".into());
        };
        if !links.is_empty() {
            let (from, to) = ((pair / world) as u32, (pair % world) as u32);
            routes.push(Route { from, to, links: links.to_vec(), latency_s: latency_s[pair] });
        }
    }
    Ok(routes)
}
