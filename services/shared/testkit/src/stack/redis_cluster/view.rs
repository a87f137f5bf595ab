//! Parser of `CLUSTER NODES`: the view that one node has of the cluster.

use std::collections::BTreeMap;

/// One line of `CLUSTER NODES`, which describes one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeView {
    pub(super) id: String,
    pub(super) port: u16,
    pub(super) flags: Vec<String>,
    /// Id of the master. `None` for a master.
    pub(super) master: Option<String>,
    /// First and last slot of each range that the node owns.
    pub(super) slots: Vec<(u16, u16)>,
}

impl NodeView {
    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }

    /// Returns true if the node is neither failed nor suspected, and has joined the cluster.
    pub(super) fn is_healthy(&self) -> bool {
        !["fail", "fail?", "handshake", "noaddr"].into_iter().any(|flag| self.is(flag))
    }

    pub(super) fn holds(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// Parses the output of `CLUSTER NODES` and skips malformed lines.
pub(super) fn parse(answer: &str) -> Vec<NodeView> {
    answer.lines().filter_map(parse_line).collect()
}

/// Master id and slot ranges of a node.
pub(super) type Role = (Option<String>, Vec<(u16, u16)>);

/// Returns the part of a view on which all nodes must agree: the role of each node by its id. Nodes whose port is not in
/// `alive` are left out.
pub(super) fn roles(nodes: &[NodeView], alive: &[u16]) -> BTreeMap<String, Role> {
    nodes
        .iter()
        .filter(|node| alive.contains(&node.port))
        .map(|node| (node.id.clone(), (node.master.clone(), node.slots.clone())))
        .collect()
}

fn parse_line(line: &str) -> Option<NodeView> {
    let mut fields = line.split_whitespace();
    let id = fields.next()?.to_owned();
    let port = fields.next()?.split('@').next()?.rsplit(':').next()?.parse().ok()?;
    let flags = fields.next()?.split(',').map(str::to_owned).collect();
    let master = fields.next().filter(|master| *master != "-").map(str::to_owned);
    // Skip the fields ping-sent, pong-recv, config-epoch and link-state.
    let slots = fields.skip(4).filter_map(parse_range).collect();
    Some(NodeView { id, port, flags, master, slots })
}

/// Parses `5` or `0-5460`. Returns `None` for a migrating slot such as `[5->-id]`: its owner lists it in a range as well.
fn parse_range(text: &str) -> Option<(u16, u16)> {
    match text.split_once('-') {
        Some((first, last)) => Some((first.parse().ok()?, last.parse().ok()?)),
        None => text.parse().ok().map(|slot| (slot, slot)),
    }
}
