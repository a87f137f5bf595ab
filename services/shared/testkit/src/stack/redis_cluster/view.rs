//! The cluster as one of its nodes sees it: `CLUSTER NODES`, parsed.

use std::collections::BTreeMap;

/// One line of `CLUSTER NODES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeView {
    pub(super) id: String,
    pub(super) port: u16,
    pub(super) flags: Vec<String>,
    /// The master's id, for a replica.
    pub(super) master: Option<String>,
    /// First and last slot of each range it holds.
    pub(super) slots: Vec<(u16, u16)>,
}

impl NodeView {
    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }

    /// Neither failed, nor suspected, nor still being introduced.
    pub(super) fn is_healthy(&self) -> bool {
        !["fail", "fail?", "handshake", "noaddr"].into_iter().any(|flag| self.is(flag))
    }

    pub(super) fn holds(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// Parses the answer of `CLUSTER NODES`; lines that make no sense are left out.
pub(super) fn parse(answer: &str) -> Vec<NodeView> {
    answer.lines().filter_map(parse_line).collect()
}

/// The master a node follows, and the ranges it holds.
pub(super) type Role = (Option<String>, Vec<(u16, u16)>);

/// What all nodes must agree on: whom each follows, and which ranges it holds. Only the nodes on the ports in `alive` count.
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
    // Ping sent, pong received, epoch, link state.
    let slots = fields.skip(4).filter_map(parse_range).collect();
    Some(NodeView { id, port, flags, master, slots })
}

/// `5`, `0-5460`; a slot on the move, `[5->-id]`, is still its owner's and is listed among the ranges as well.
fn parse_range(text: &str) -> Option<(u16, u16)> {
    match text.split_once('-') {
        Some((first, last)) => Some((first.parse().ok()?, last.parse().ok()?)),
        None => text.parse().ok().map(|slot| (slot, slot)),
    }
}
