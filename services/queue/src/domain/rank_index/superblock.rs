//! The bits of 32,768 numbers, with the count of set bits before each block of 256.

/// Numbers per superblock. Half-empty superblocks at the ends of a line cost little memory at this size.
pub(crate) const SUPERBLOCK_SEQS: u64 = 1 << 15;

/// Blocks per superblock.
const BLOCKS: usize = 128;

/// First bit of each word of a block. With more than four words, counting bits would cost more than it saves in counts.
const WORD_STARTS: [u16; 4] = [0, 64, 128, 192];

/// A superblock. Numbers are given as offsets: the upper byte is the block, the lower byte the bit in the block.
#[derive(Clone, Debug)]
pub(crate) struct Superblock {
    /// Number of bits set before each block, at most 32,512.
    before: [u16; BLOCKS],
    blocks: [[u64; WORD_STARTS.len()]; BLOCKS],
}

impl Default for Superblock {
    fn default() -> Self {
        Self { before: [0; BLOCKS], blocks: [[0; WORD_STARTS.len()]; BLOCKS] }
    }
}

impl Superblock {
    pub(crate) fn contains(&self, offset: u16) -> bool {
        self.blocks
            .get(block_of(offset))
            .and_then(|block| block.get(word_of(offset)))
            .is_some_and(|word| word & bit_of(offset) != 0)
    }

    /// Counts the bits set before this one.
    pub(crate) fn before(&self, offset: u16) -> u64 {
        let counted = self.before.get(block_of(offset)).copied().unwrap_or_default();
        let block = self.blocks.get(block_of(offset)).copied().unwrap_or_default();
        let bit = offset & 0xff;
        // Counts all four words without a branch: a mispredicted branch costs more.
        let mut inside = 0;
        for (word, start) in block.into_iter().zip(WORD_STARTS) {
            inside += (word & ones_below(bit.saturating_sub(start))).count_ones();
        }
        u64::from(counted) + u64::from(inside)
    }

    /// Sets the bits from `first` to `last`; returns how many of them were not set before.
    pub(crate) fn insert_range(&mut self, first: u16, last: u16) -> u64 {
        let (first_block, last_block) = (block_of(first), block_of(last));
        let mut added = 0_u16;
        let touched = self.blocks.iter_mut().zip(&mut self.before).enumerate();
        for (number, (block, before)) in touched.take(last_block + 1).skip(first_block) {
            *before += added;
            let from = if number == first_block { first & 0xff } else { 0 };
            let to = if number == last_block { last & 0xff } else { 0xff };
            added += set_bits(block, from, to);
        }
        self.before.iter_mut().skip(last_block + 1).for_each(|before| *before += added);
        u64::from(added)
    }

    /// Clears a bit; returns true if it was set.
    pub(crate) fn remove(&mut self, offset: u16) -> bool {
        if !self.contains(offset) {
            return false;
        }
        let block = self.blocks.get_mut(block_of(offset));
        if let Some(word) = block.and_then(|block| block.get_mut(word_of(offset))) {
            *word &= !bit_of(offset);
        }
        self.before.iter_mut().skip(block_of(offset) + 1).for_each(|before| *before -= 1);
        true
    }

    /// Returns the set bit that has `rank` set bits before it.
    pub(crate) fn at(&self, rank: u16) -> Option<u16> {
        let number = self.before.partition_point(|before| *before <= rank).checked_sub(1)?;
        let mut left = u32::from(rank - self.before.get(number)?);
        for (word, start) in self.blocks.get(number)?.iter().zip(WORD_STARTS) {
            let ones = word.count_ones();
            if left < ones {
                return Some(start_of(number) + start + nth_one(*word, left));
            }
            left -= ones;
        }
        None
    }

    /// Returns all set bits in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.blocks.iter().enumerate().flat_map(|(number, block)| {
            let words = block.iter().zip(WORD_STARTS);
            words.flat_map(move |(word, start)| ones(*word).map(move |bit| start_of(number) + start + bit))
        })
    }
}

fn block_of(offset: u16) -> usize {
    usize::from(offset >> 8)
}

fn word_of(offset: u16) -> usize {
    usize::from((offset >> 6) & 3)
}

fn bit_of(offset: u16) -> u64 {
    1 << (offset & 63)
}

fn start_of(block: usize) -> u16 {
    u16::try_from(block << 8).unwrap_or_default()
}

/// Returns a word with the `count` lowest bits set; all bits for 64 and more.
fn ones_below(count: u16) -> u64 {
    1_u64.checked_shl(u32::from(count)).unwrap_or_default().wrapping_sub(1)
}

/// Sets the bits of a block from `first` to `last`; returns how many of them were not set before.
fn set_bits(block: &mut [u64; WORD_STARTS.len()], first: u16, last: u16) -> u16 {
    let mut added = 0;
    for (word, start) in block.iter_mut().zip(WORD_STARTS) {
        let upper = ones_below((last + 1).saturating_sub(start));
        let new = upper & !ones_below(first.saturating_sub(start)) & !*word;
        *word |= new;
        added += u16::try_from(new.count_ones()).unwrap_or_default();
    }
    added
}

/// Returns the set bit that has `rank` set bits before it. The word must have more than `rank` bits set.
fn nth_one(word: u64, rank: u32) -> u16 {
    let mut rest = word;
    for _ in 0..rank {
        rest &= rest - 1;
    }
    lowest(rest)
}

/// Returns all set bits of a word in order.
fn ones(word: u64) -> impl Iterator<Item = u16> {
    std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)))
        .take_while(|rest| *rest != 0)
        .map(lowest)
}

fn lowest(word: u64) -> u16 {
    u16::try_from(word.trailing_zeros()).unwrap_or_default()
}
