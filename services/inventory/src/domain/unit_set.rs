//! A set of a sector's units: one bit per unit, in the order of the contract's `free_map`.

const BITS_PER_BYTE: u32 = 8;

/// Units of one sector, 1 to its capacity. It never contains a number beyond the capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitSet {
    /// Unit n is bit (n − 1) % 8, from the lowest, of byte (n − 1) / 8. Bits beyond the capacity are 0.
    bytes: Vec<u8>,
    capacity: u32,
}

impl UnitSet {
    /// Returns an empty set for units up to `capacity`.
    #[must_use]
    pub(crate) fn empty(capacity: u32) -> Self {
        Self { bytes: vec![0; bytes_for(capacity)], capacity }
    }

    /// Returns the set of all units up to `capacity`.
    #[must_use]
    pub(crate) fn full(capacity: u32) -> Self {
        Self::from_bytes(&vec![u8::MAX; bytes_for(capacity)], capacity)
    }

    /// Returns the set of all units up to `capacity` except `units`.
    #[must_use]
    pub(crate) fn all_but(units: impl IntoIterator<Item = u32>, capacity: u32) -> Self {
        let mut set = Self::full(capacity);
        for unit in units {
            set.remove(unit);
        }
        set
    }

    /// Reads `bytes` in the order of the field above. Missing bytes count as 0; bits beyond the capacity are dropped.
    #[must_use]
    pub(crate) fn from_bytes(bytes: &[u8], capacity: u32) -> Self {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes_for(capacity), 0);
        let used = capacity % BITS_PER_BYTE;
        if let Some(last) = bytes.last_mut()
            && used > 0
        {
            *last &= (1 << used) - 1;
        }
        Self { bytes, capacity }
    }

    /// Returns the bytes in the order of the contract.
    #[must_use]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[must_use]
    pub(crate) fn contains(&self, unit: u32) -> bool {
        self.bit_of(unit).is_some_and(|(byte, mask)| self.bytes.get(byte).is_some_and(|it| it & mask != 0))
    }

    /// Adds `unit`; does nothing if it is beyond the capacity.
    pub(crate) fn insert(&mut self, unit: u32) {
        if let Some((byte, mask)) = self.bit_of(unit)
            && let Some(byte) = self.bytes.get_mut(byte)
        {
            *byte |= mask;
        }
    }

    pub(crate) fn remove(&mut self, unit: u32) {
        if let Some((byte, mask)) = self.bit_of(unit)
            && let Some(byte) = self.bytes.get_mut(byte)
        {
            *byte &= !mask;
        }
    }

    /// Returns the first unit of the set that is at least `unit`.
    #[must_use]
    pub(crate) fn first_from(&self, unit: u32) -> Option<u32> {
        let index = unit.checked_sub(1)?;
        let mut byte = usize::try_from(index / BITS_PER_BYTE).ok()?;
        let mut bits = self.bytes.get(byte)? & (u8::MAX << (index % BITS_PER_BYTE));
        while bits == 0 {
            // Most of a busy sector is taken, so empty bytes are skipped in one step.
            byte += 1 + self.bytes.get(byte + 1..)?.iter().position(|it| *it != 0)?;
            bits = *self.bytes.get(byte)?;
        }
        Some(u32::try_from(byte).ok()? * BITS_PER_BYTE + bits.trailing_zeros() + 1)
    }

    /// Returns the number of units.
    #[must_use]
    pub(crate) fn count(&self) -> u32 {
        self.bytes.iter().map(|byte| byte.count_ones()).sum()
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }

    /// Returns the units in rising order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let starts = (1_u32..).step_by(8);
        self.bytes.iter().zip(starts).flat_map(|(byte, start)| {
            (0..BITS_PER_BYTE).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| start + bit)
        })
    }

    /// Returns the units in rising order.
    #[must_use]
    pub(crate) fn to_vec(&self) -> Vec<u32> {
        self.iter().collect()
    }

    /// Returns the units that are not in `other`.
    #[must_use]
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut bytes = self.bytes.clone();
        for (byte, other) in bytes.iter_mut().zip(&other.bytes) {
            *byte &= !other;
        }
        Self { bytes, capacity: self.capacity }
    }

    /// Returns the units that are not among `units`.
    #[must_use]
    pub(crate) fn without_units<'a>(&self, units: impl IntoIterator<Item = &'a u32>) -> Self {
        let mut rest = self.clone();
        units.into_iter().for_each(|unit| rest.remove(*unit));
        rest
    }

    /// Returns the units that are also in `other`.
    #[must_use]
    pub(crate) fn common(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }

    fn bit_of(&self, unit: u32) -> Option<(usize, u8)> {
        let index = unit.checked_sub(1).filter(|_| unit <= self.capacity)?;
        Some((usize::try_from(index / BITS_PER_BYTE).ok()?, 1 << (index % BITS_PER_BYTE)))
    }
}

fn bytes_for(capacity: u32) -> usize {
    usize::try_from(capacity.div_ceil(BITS_PER_BYTE)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unit_one_is_the_lowest_bit_of_the_first_byte() {
        let mut set = UnitSet::empty(10);
        set.insert(1);
        set.insert(10);
        assert_eq!(set.as_bytes(), [0b0000_0001, 0b0000_0010]);
        assert_eq!(UnitSet::full(10).as_bytes(), [0xff, 0b0000_0011]);
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_the_units_within_the_capacity(
            capacity in 1_u32..70,
            inserted in prop::collection::btree_set(0_u32..80, 0..80),
            removed in prop::collection::btree_set(0_u32..80, 0..80),
        ) {
            let mut set = UnitSet::empty(capacity);
            inserted.iter().for_each(|unit| set.insert(*unit));
            removed.iter().for_each(|unit| set.remove(*unit));
            let expected: BTreeSet<u32> =
                inserted.difference(&removed).copied().filter(|unit| (1..=capacity).contains(unit)).collect();
            prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), expected.clone());
            prop_assert_eq!(usize::try_from(set.count()).unwrap(), expected.len());
            prop_assert!((0..80).all(|unit| set.contains(unit) == expected.contains(&unit)));
            prop_assert!((1..80).all(|unit| set.first_from(unit) == expected.range(unit..).next().copied()));
            prop_assert_eq!(&UnitSet::from_bytes(set.as_bytes(), capacity), &set);
            prop_assert_eq!(set.is_empty(), expected.is_empty());
            prop_assert!(set.without_units(&expected).is_empty());
            prop_assert_eq!(UnitSet::full(capacity).without_units(&removed), UnitSet::all_but(removed.clone(), capacity));
            let rest = UnitSet::all_but(removed.iter().copied(), capacity);
            prop_assert_eq!(UnitSet::full(capacity).common(&rest), rest.clone());
            prop_assert_eq!(set.common(&rest), set.clone());
            prop_assert!(rest.common(&UnitSet::full(capacity).without(&rest)).is_empty());
            prop_assert_eq!(UnitSet::full(capacity).without(&set), UnitSet::all_but(set.iter(), capacity));
        }
    }
}
