//! Index of the waiting numbers: a bitmap with counts, from which a position is one lookup.
//!
//! Numbers in line (seqs) have no gaps, so the line is a bitmap over `admitted_seq + 1 ..= last_seq`; a set bit means that
//! the number waits. The bitmap is divided into superblocks of 32,768 numbers. Each stores the bits set before it, and the
//! bits set before each of its blocks of 256, so a position is the sum of two counts and the bits of four words. Superblocks
//! are dropped from the head as they are admitted. The counts are not renumbered then; `gone` is subtracted from them.
//!
//! | Operation | Cost |
//! |---|---|
//! | `position`, `before`, `contains`, `len` | O(1): two counts, four words |
//! | `insert_range` at the end | O(1) per 64 seqs, plus the counts of one superblock |
//! | `remove`, `insert` in the middle | one bit, at most 127 adjacent 16-bit counts, and one count per later superblock |
//! | `admit_up_to` | O(superblocks dropped) |
//! | `at` | O(log n) |
//!
//! Memory: 1.0625 bits per number between the last admitted one and the last one given out, rounded up to whole superblocks
//! (4.25 KiB), and 16 bytes per superblock. Superblocks in which no number ever waited have no bits. An index spans at most
//! [`SPAN_MAX`] numbers, so that a wrong number cannot cost gigabytes.

mod superblock;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::superblock::{SUPERBLOCK_SEQS, Superblock};

/// Largest distance of a number from the last admitted one. Numbers beyond it are ignored. It exceeds every real line, and a
/// full index of this span (570 MB) fits into the memory of a pod.
pub const SPAN_MAX: u64 = 1 << 32;

/// The waiting numbers of a line. The module documents its layout, costs and memory.
#[derive(Clone, Debug, Default)]
pub struct RankIndex {
    /// No number up to this one waits.
    admitted_seq: u64,
    /// Number of bits that are set at or below `admitted_seq`, or were dropped with their superblocks.
    gone: u64,
    /// Number of bits that are set or were dropped.
    end: u64,
    /// The first slot holds `admitted_seq + 1`, the last one the highest number ever inserted.
    slots: VecDeque<Slot>,
}

/// A superblock with the count before it.
#[derive(Clone, Debug)]
struct Slot {
    /// Number of bits that are set before it or were dropped.
    before: u64,
    /// `None`: no number of this superblock ever waited.
    bits: Option<Box<Superblock>>,
}

impl RankIndex {
    /// Returns the index of an empty line.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all numbers up to `seq`. A lower `seq` than before changes nothing.
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

    /// Returns the number up to which no number waits.
    #[must_use]
    pub fn admitted_seq(&self) -> u64 {
        self.admitted_seq
    }

    /// Inserts the numbers from `first` to `last`, except those that were admitted or wait already.
    pub fn insert_range(&mut self, first: u64, last: u64) {
        let mut from = first.max(self.admitted_seq.saturating_add(1));
        let last = last.min(self.admitted_seq.saturating_add(SPAN_MAX));
        // `u64::MAX` is never inserted, because the loop could not step past it.
        while from <= last && from < u64::MAX {
            let to = last.min(end_of(from));
            self.insert_in_superblock(from, to);
            from = to.saturating_add(1);
        }
    }

    /// Inserts one number; returns true if it was new.
    pub fn insert(&mut self, seq: u64) -> bool {
        let end = self.end;
        self.insert_range(seq, seq);
        self.end != end
    }

    /// Removes one number; returns true if it waited.
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

    /// Returns the position of a number, from 1, or `None` if it does not wait.
    #[must_use]
    pub fn position(&self, seq: u64) -> Option<u64> {
        let slot = self.slots.get(self.index_of(seq)?)?;
        let bits = slot.bits.as_deref()?;
        let offset = offset_of(seq);
        bits.contains(offset).then(|| slot.before + bits.before(offset) - self.gone + 1)
    }

    /// Counts the numbers that wait before `seq`, which need not wait itself.
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

    /// Returns the number at a position, from 1.
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

    /// Counts the waiting numbers.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.gone
    }

    /// Returns true if no number waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the number waits.
    #[must_use]
    pub fn contains(&self, seq: u64) -> bool {
        let slot = self.index_of(seq).and_then(|index| self.slots.get(index));
        slot.and_then(|slot| slot.bits.as_deref()).is_some_and(|bits| bits.contains(offset_of(seq)))
    }

    /// Returns up to `count` numbers that wait just before `seq` and up to `count` just after it, in the order of the line.
    /// `seq` need not wait itself.
    #[must_use]
    pub fn neighbors(&self, seq: u64, count: usize) -> (Vec<u64>, Vec<u64>) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let before = self.before(seq);
        let after = before + u64::from(self.contains(seq));
        let last = after.saturating_add(count).min(self.len());
        (self.between(before.saturating_sub(count) + 1, before), self.between(after + 1, last))
    }

    /// Returns the first `count` waiting numbers.
    #[must_use]
    pub fn first(&self, count: usize) -> Vec<u64> {
        self.iter().take(count).collect()
    }

    /// Returns the last waiting number.
    #[must_use]
    pub fn last_seq(&self) -> Option<u64> {
        self.at(self.len())
    }

    /// Returns the memory of the index in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let superblocks = self.slots.iter().filter(|slot| slot.bits.is_some()).count();
        size_of::<Self>() + self.slots.capacity() * size_of::<Slot>() + superblocks * size_of::<Superblock>()
    }

    /// Returns all waiting numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let slots = self.slots.iter().enumerate();
        slots
            .filter_map(|(index, slot)| Some((self.first_seq_of(index), slot.bits.as_deref()?)))
            .flat_map(|(first_seq, bits)| bits.iter().map(move |offset| first_seq + u64::from(offset)))
            .skip_while(|seq| *seq <= self.admitted_seq)
    }

    /// Returns the numbers at these positions.
    fn between(&self, first: u64, last: u64) -> Vec<u64> {
        (first..=last).filter_map(|position| self.at(position)).collect()
    }

    /// Inserts numbers of one superblock, which must be after the last admitted one and within the span.
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

    /// Returns the slot of a number, or `None` if it was admitted or is behind the last slot.
    fn index_of(&self, seq: u64) -> Option<usize> {
        if seq <= self.admitted_seq {
            return None;
        }
        usize::try_from(number_of(seq) - self.base()).ok().filter(|index| *index < self.slots.len())
    }

    /// Returns the superblock of the first slot.
    fn base(&self) -> u64 {
        number_of(self.admitted_seq.saturating_add(1))
    }

    fn first_seq_of(&self, index: usize) -> u64 {
        (self.base() + u64::try_from(index).unwrap_or(u64::MAX)) * SUPERBLOCK_SEQS
    }
}

/// Returns the superblock that holds a number.
fn number_of(seq: u64) -> u64 {
    seq / SUPERBLOCK_SEQS
}

/// Returns the offset of a number in its superblock.
fn offset_of(seq: u64) -> u16 {
    u16::try_from(seq % SUPERBLOCK_SEQS).unwrap_or_default()
}

/// Returns the last number of the same superblock.
fn end_of(seq: u64) -> u64 {
    seq | (SUPERBLOCK_SEQS - 1)
}
