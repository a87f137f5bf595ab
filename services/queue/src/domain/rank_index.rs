//! Who waits, by seq, so that anybody's position is one look-up: a bitmap with counts.
//!
//! Seqs are numbered without gaps, so the line is a bitmap over `admitted_seq + 1 ..= last_seq`: a bit says "waits". It is
//! cut into superblocks of 32,768 seqs. Each knows how many wait before it, and how many of its own wait before each of its
//! blocks of 256; so a position is two counts and the bits of four words. Superblocks are dropped from the head as they are
//! admitted. Counts begin wherever they began: nothing is renumbered then, only `gone` is taken off.
//!
//! | Operation | Cost |
//! |---|---|
//! | `position`, `before`, `contains`, `len` | O(1): two counts, four words |
//! | `insert_range` at the end | O(1) per 64 seqs, plus the counts of one superblock |
//! | `remove`, `insert` in the middle | one bit, ≤ 127 small counts side by side, and one count per later superblock |
//! | `admit_up_to` | O(superblocks dropped) |
//! | `at` | O(log n) |
//!
//! Memory: 1.0625 bits per seq between the last admitted and the last who joined, whether that one still waits or has left,
//! rounded up to whole superblocks (4.25 KiB), and 16 bytes per superblock. Superblocks in which nobody ever waited have no
//! bits. An index never spans more than [`SPAN_MAX`] seqs: a number that cannot be right must not cost gigabytes.

mod superblock;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::superblock::{SUPERBLOCK_SEQS, Superblock};

/// How far beyond the last admitted a seq may lie to be taken in: more than anybody's line is long, and little enough that
/// the whole of it (570 MB) fits into a pod's memory. What lies further is not taken in.
pub const SPAN_MAX: u64 = 1 << 32;

/// Who waits, by seq. The layout, its costs and its memory: see the module.
#[derive(Clone, Debug, Default)]
pub struct RankIndex {
    /// Nobody up to here waits.
    admitted_seq: u64,
    /// How many bits stand at or below `admitted_seq`, or have been dropped with their superblocks.
    gone: u64,
    /// How many bits stand or have been dropped.
    end: u64,
    /// The first one holds `admitted_seq + 1`; the last one, the highest seq ever taken in.
    slots: VecDeque<Slot>,
}

/// A superblock's place.
#[derive(Clone, Debug)]
struct Slot {
    /// How many bits stand before it or have been dropped.
    before: u64,
    /// None: nobody has waited here yet.
    bits: Option<Box<Superblock>>,
}

impl RankIndex {
    /// Of an empty line from which nobody has been admitted.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Everybody up to `seq` has been admitted or has gone. Never goes back: a lower one changes nothing.
    pub fn admit_up_to(&mut self, seq: u64) {
        if seq <= self.admitted_seq {
            return;
        }
        self.gone += self.before(seq.saturating_add(1));
        let dropped = number_of(seq.saturating_add(1)) - self.base();
        let dropped = usize::try_from(dropped).unwrap_or(usize::MAX).min(self.slots.len());
        self.slots.drain(..dropped);
        self.admitted_seq = seq;
    }

    /// Nobody up to here waits.
    #[must_use]
    pub fn admitted_seq(&self) -> u64 {
        self.admitted_seq
    }

    /// Takes in everybody from `first` to `last`. Who has been admitted is left out; who waits already stays.
    pub fn insert_range(&mut self, first: u64, last: u64) {
        let mut from = first.max(self.admitted_seq.saturating_add(1));
        let last = last.min(self.admitted_seq.saturating_add(SPAN_MAX));
        // The very last number stands for "nobody comes after".
        while from <= last && from < u64::MAX {
            let to = last.min(end_of(from));
            self.insert_in_superblock(from, to);
            from = to.saturating_add(1);
        }
    }

    /// Takes in one; answers whether that changed anything.
    pub fn insert(&mut self, seq: u64) -> bool {
        let end = self.end;
        self.insert_range(seq, seq);
        self.end != end
    }

    /// Takes one out of the line; answers whether it was there.
    pub fn remove(&mut self, seq: u64) -> bool {
        let Some(index) = self.index_of(seq) else {
            return false;
        };
        let bits = self.slots.get_mut(index).and_then(|slot| slot.bits.as_mut());
        if !bits.is_some_and(|bits| bits.remove(offset_of(seq))) {
            return false;
        }
        self.slots.range_mut(index + 1..).for_each(|slot| slot.before -= 1);
        self.end -= 1;
        true
    }

    /// The position, from 1, of one who waits. None: does not wait.
    #[must_use]
    pub fn position(&self, seq: u64) -> Option<u64> {
        let slot = self.slots.get(self.index_of(seq)?)?;
        let bits = slot.bits.as_deref()?;
        let offset = offset_of(seq);
        bits.contains(offset).then(|| slot.before + bits.before(offset) - self.gone + 1)
    }

    /// How many wait before `seq`, whether or not it waits itself.
    #[must_use]
    pub fn before(&self, seq: u64) -> u64 {
        if seq <= self.admitted_seq {
            return 0;
        }
        let Some(slot) = self.index_of(seq).and_then(|index| self.slots.get(index)) else {
            return self.len();
        };
        let inside = slot.bits.as_deref().map_or(0, |bits| bits.before(offset_of(seq)));
        slot.before + inside - self.gone
    }

    /// Whose position, from 1, it is.
    #[must_use]
    pub fn at(&self, position: u64) -> Option<u64> {
        if position == 0 || position > self.len() {
            return None;
        }
        let rank = self.gone + position - 1;
        let index = self.slots.partition_point(|slot| slot.before <= rank).checked_sub(1)?;
        let slot = self.slots.get(index)?;
        let offset = slot.bits.as_deref()?.at(u16::try_from(rank - slot.before).ok()?)?;
        Some(self.first_seq_of(index) + u64::from(offset))
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.gone
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this one waits.
    #[must_use]
    pub fn contains(&self, seq: u64) -> bool {
        let slot = self.index_of(seq).and_then(|index| self.slots.get(index));
        slot.and_then(|slot| slot.bits.as_deref()).is_some_and(|bits| bits.contains(offset_of(seq)))
    }

    /// Up to `count` who wait just before `seq`, and up to `count` just after it, both in the order of the line.
    /// It need not wait itself.
    #[must_use]
    pub fn neighbors(&self, seq: u64, count: usize) -> (Vec<u64>, Vec<u64>) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let before = self.before(seq);
        let after = before + u64::from(self.contains(seq));
        let last = after.saturating_add(count).min(self.len());
        (self.between(before.saturating_sub(count) + 1, before), self.between(after + 1, last))
    }

    /// The first `count` who wait: those to admit next.
    #[must_use]
    pub fn first(&self, count: usize) -> Vec<u64> {
        self.iter().take(count).collect()
    }

    /// Who is last in line.
    #[must_use]
    pub fn last_seq(&self) -> Option<u64> {
        self.at(self.len())
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let superblocks = self.slots.iter().filter(|slot| slot.bits.is_some()).count();
        size_of::<Self>() + self.slots.capacity() * size_of::<Slot>() + superblocks * size_of::<Superblock>()
    }

    /// Everybody who waits, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let slots = self.slots.iter().enumerate();
        slots
            .filter_map(|(index, slot)| Some((self.first_seq_of(index), slot.bits.as_deref()?)))
            .flat_map(|(first_seq, bits)| bits.iter().map(move |offset| first_seq + u64::from(offset)))
            .skip_while(|seq| *seq <= self.admitted_seq)
    }

    /// Who stands at these positions.
    fn between(&self, first: u64, last: u64) -> Vec<u64> {
        (first..=last).filter_map(|position| self.at(position)).collect()
    }

    /// Both seqs lie in one superblock, after the last admitted and within the span.
    fn insert_in_superblock(&mut self, first: u64, last: u64) {
        let Ok(index) = usize::try_from(number_of(first) - self.base()) else {
            return;
        };
        if index >= self.slots.len() {
            let end = self.end;
            self.slots.resize_with(index + 1, || Slot { before: end, bits: None });
        }
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let bits = slot.bits.get_or_insert_default();
        let added = bits.insert_range(offset_of(first), offset_of(last));
        self.slots.range_mut(index + 1..).for_each(|slot| slot.before += added);
        self.end += added;
    }

    /// Which slot holds a seq that may wait. None: it does not wait, and nobody after it does or it has been admitted.
    fn index_of(&self, seq: u64) -> Option<usize> {
        if seq <= self.admitted_seq {
            return None;
        }
        usize::try_from(number_of(seq) - self.base()).ok().filter(|index| *index < self.slots.len())
    }

    /// The number of the superblock in the first slot.
    fn base(&self) -> u64 {
        number_of(self.admitted_seq.saturating_add(1))
    }

    fn first_seq_of(&self, index: usize) -> u64 {
        (self.base() + u64::try_from(index).unwrap_or(u64::MAX)) * SUPERBLOCK_SEQS
    }
}

/// Which superblock holds a seq.
fn number_of(seq: u64) -> u64 {
    seq / SUPERBLOCK_SEQS
}

/// Where in its superblock.
fn offset_of(seq: u64) -> u16 {
    u16::try_from(seq % SUPERBLOCK_SEQS).unwrap_or_default()
}

/// The last seq of the superblock that holds this one.
fn end_of(seq: u64) -> u64 {
    seq | (SUPERBLOCK_SEQS - 1)
}
