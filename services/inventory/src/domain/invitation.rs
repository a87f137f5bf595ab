//! Invitations to a quota: the transitions of their state, and the customer they belong to.

use onsale_types::{CustomerId, HoldId, InvitationId, QuotaId, SectorId, Timestamp};

use super::{
    hold::Selection,
    quota::{Quota, QuotaState},
};

/// The limit of SMTP.
const ADDRESS_BYTES_MAX: usize = 254;

/// Life of an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum InvitationState {
    /// Mailed and not accepted.
    Pending,
    /// Bound to a customer, who may hold units with it.
    Accepted,
    /// Its units are bought.
    Used,
    /// Not used before the return of its quota.
    Expired,
}

/// A person to invite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invitee {
    pub(crate) email: String,
    /// Most units that the invitee may buy.
    pub(crate) unit_count: u32,
    /// Language of the mail; empty: Notification's default.
    pub(crate) locale: String,
}

/// One person's right to buy from a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invitation {
    pub(crate) id: InvitationId,
    pub(crate) quota_id: QuotaId,
    pub(crate) email: String,
    /// Most units that may be bought.
    pub(crate) unit_count: u32,
    pub(crate) state: InvitationState,
    /// `None` before it is accepted.
    pub(crate) accepted: Option<Accepted>,
    /// The hold with its units, held or sold.
    pub(crate) hold_id: Option<HoldId>,
}

/// The acceptance of an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) customer_id: CustomerId,
    pub(crate) time: Timestamp,
}

/// A reason for which a customer cannot use an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvitationFault {
    #[error("the invitation was not accepted")]
    NotAccepted,
    #[error("another customer accepted the invitation")]
    AcceptedByAnother,
    #[error("the invitation was not used in time")]
    Expired {
        /// Return time of the quota.
        expire_time: Timestamp,
    },
    #[error("the invitation's units are held or bought")]
    Used,
}

/// A reservation that does not fit its invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvitedSelectionFault {
    #[error("is not the sector of the invitation")]
    OtherSector {
        /// Index of the selection.
        index: usize,
    },
    #[error("must have one entry")]
    NotOne,
    #[error("must have at most {unit_count} units, the limit of the invitation")]
    TooMany { unit_count: u32 },
}

impl Invitation {
    /// Binds the invitation to `customer_id`. Returns true if that is new, false if it is the customer's already.
    pub(crate) fn accept(
        &mut self,
        customer_id: CustomerId,
        quota: &Quota,
        now: Timestamp,
    ) -> Result<bool, InvitationFault> {
        let is_theirs = self.check_owner(customer_id)?;
        match self.state {
            InvitationState::Used => return Err(InvitationFault::Used),
            // Held units may still be paid for after the return of the quota.
            InvitationState::Accepted if self.hold_id.is_some() => {}
            InvitationState::Pending | InvitationState::Accepted | InvitationState::Expired => {
                self.check_time(quota, now)?;
            }
        }
        if !is_theirs {
            self.accepted = Some(Accepted { customer_id, time: now });
            self.state = InvitationState::Accepted;
        }
        Ok(!is_theirs)
    }

    /// Decides whether `customer_id` may hold units with it at `now`.
    pub(crate) fn check_use(
        &self,
        customer_id: CustomerId,
        quota: &Quota,
        now: Timestamp,
    ) -> Result<(), InvitationFault> {
        let is_theirs = self.check_owner(customer_id)?;
        if self.hold_id.is_some() {
            return Err(InvitationFault::Used);
        }
        self.check_time(quota, now)?;
        if is_theirs { Ok(()) } else { Err(InvitationFault::NotAccepted) }
    }

    /// Returns the only selection of a reservation with this invitation: of the quota's sector, and of at most `unit_count`
    /// units.
    pub(crate) fn check_selections<'a>(
        &self,
        sector_id: SectorId,
        selections: &'a [Selection],
    ) -> Result<&'a Selection, InvitedSelectionFault> {
        if let Some(index) = selections.iter().position(|selection| selection.sector_id != sector_id) {
            return Err(InvitedSelectionFault::OtherSector { index });
        }
        let selection = selections.first().ok_or(InvitedSelectionFault::NotOne)?;
        if selection.choice.count() > self.unit_count {
            return Err(InvitedSelectionFault::TooMany { unit_count: self.unit_count });
        }
        Ok(selection)
    }

    /// Records the hold that has its units.
    pub(crate) fn hold(&mut self, hold_id: HoldId) {
        self.hold_id = Some(hold_id);
    }

    /// Forgets its released hold. It may be used again, unless its quota has been returned.
    pub(crate) fn release(&mut self, quota: &Quota) {
        self.hold_id = None;
        if quota.state == QuotaState::Returned {
            self.state = InvitationState::Expired;
        }
    }

    /// Marks it as used by a paid hold of `bought` units. Returns the number of promised units that were not bought.
    #[must_use]
    pub(crate) fn use_up(&mut self, bought: u32) -> u32 {
        self.state = InvitationState::Used;
        self.unit_count.saturating_sub(bought)
    }

    /// Returns true if it is this customer's, false if nobody has accepted it; refuses another customer.
    fn check_owner(&self, customer_id: CustomerId) -> Result<bool, InvitationFault> {
        match self.accepted {
            Some(accepted) if accepted.customer_id == customer_id => Ok(true),
            Some(_) => Err(InvitationFault::AcceptedByAnother),
            None => Ok(false),
        }
    }

    fn check_time(&self, quota: &Quota, now: Timestamp) -> Result<(), InvitationFault> {
        if self.state != InvitationState::Expired && quota.is_open_at(now) {
            Ok(())
        } else {
            Err(InvitationFault::Expired { expire_time: quota.return_time })
        }
    }
}

/// Returns the indexes of the invitees who would get more than `units_max` units.
pub(crate) fn invitees_above(invitees: &[Invitee], units_max: u32) -> Vec<usize> {
    let above = invitees.iter().enumerate().filter(|(_, invitee)| invitee.unit_count > units_max);
    above.map(|(index, _)| index).collect()
}

/// Returns true if `text` is an address such as `ana@example.com`, without a display name, that is safe in an envelope and a
/// header. Does not check that the mailbox exists.
#[must_use]
pub(crate) fn is_email(text: &str) -> bool {
    let is_odd = |it: char| it.is_control() || it.is_whitespace() || "<>()[],;:\\\"@".contains(it);
    let is_plain = |part: &str| !part.is_empty() && !part.chars().any(is_odd);
    text.len() <= ADDRESS_BYTES_MAX
        && text.rsplit_once('@').is_some_and(|(local, domain)| is_plain(local) && is_plain(domain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::quota::tests::a_quota, *};

    const END: Timestamp = Timestamp::from_secs(100);
    const EXPIRED: InvitationFault = InvitationFault::Expired { expire_time: END };

    fn an_invitation(quota: &Quota, unit_count: u32) -> Invitation {
        Invitation {
            id: InvitationId::generate(),
            quota_id: quota.id,
            email: "ana@example.com".to_owned(),
            unit_count,
            state: InvitationState::Pending,
            accepted: None,
            hold_id: None,
        }
    }

    #[test]
    fn invitation_belongs_to_the_first_customer_who_accepts_it() {
        let quota = a_quota(9);
        let (first, second) = (CustomerId::generate(), CustomerId::generate());
        let mut invitation = an_invitation(&quota, 2);
        let now = Timestamp::EPOCH;
        assert_eq!(invitation.check_use(first, &quota, now), Err(InvitationFault::NotAccepted));
        assert_eq!(invitation.accept(first, &quota, now), Ok(true));
        assert_eq!(invitation.accept(first, &quota, now), Ok(false));
        assert_eq!(invitation.accept(second, &quota, now), Err(InvitationFault::AcceptedByAnother));
        assert_eq!(invitation.check_use(second, &quota, now), Err(InvitationFault::AcceptedByAnother));
        assert_eq!(invitation.check_use(first, &quota, now), Ok(()));
    }

    #[test]
    fn invitation_expires_at_the_return_time_of_its_quota() {
        let quota = a_quota(9);
        let customer = CustomerId::generate();
        let mut invitation = an_invitation(&quota, 2);
        assert_eq!(invitation.clone().accept(customer, &quota, END), Err(EXPIRED));
        assert_eq!(invitation.check_use(customer, &quota, END), Err(EXPIRED));
        invitation.accept(customer, &quota, Timestamp::EPOCH).unwrap();
        assert_eq!(invitation.accept(customer, &quota, END), Err(EXPIRED));
        assert_eq!(invitation.check_use(customer, &quota, END), Err(EXPIRED));
        invitation.hold(HoldId::generate());
        assert_eq!(invitation.accept(customer, &quota, END), Ok(false), "held units may still be paid for");
    }

    #[test]
    fn invitation_holds_once_at_a_time_and_buys_once() {
        let quota = a_quota(9);
        let customer = CustomerId::generate();
        let mut invitation = an_invitation(&quota, 3);
        let now = Timestamp::EPOCH;
        invitation.accept(customer, &quota, now).unwrap();
        invitation.hold(HoldId::generate());
        assert_eq!(invitation.check_use(customer, &quota, now), Err(InvitationFault::Used));
        invitation.release(&quota);
        assert_eq!(invitation.check_use(customer, &quota, now), Ok(()));
        invitation.hold(HoldId::generate());
        assert_eq!(invitation.use_up(2), 1);
        assert_eq!(invitation.check_use(customer, &quota, now), Err(InvitationFault::Used));
        assert_eq!(invitation.accept(customer, &quota, now), Err(InvitationFault::Used));
    }

    #[test]
    fn address_has_two_parts_and_no_character_that_ends_a_header() {
        for good in ["ana@example.com", "a.b+c@x.test", "ž@č.test", "o'neil@example.com"] {
            assert!(is_email(good), "{good}");
        }
        let long = format!("{}@example.com", "a".repeat(243));
        for bad in
            ["", "ana", "@x.test", "ana@", "a b@x.test", "a@b@x.test", "<a@x.test>", "a@x\r\nBcc: b", &long]
        {
            assert!(!is_email(bad), "{bad}");
        }
    }

    /// A random change of a quota or of one of its invitations.
    #[derive(Clone, Debug)]
    enum RandomChange {
        Invite(u32),
        Accept { index: usize, customer: usize },
        Hold { index: usize, customer: usize, units: u32 },
        Release(usize),
        Buy(usize),
        Return,
    }

    fn changes() -> impl Strategy<Value = Vec<RandomChange>> {
        let index = || 0_usize..4;
        let change = prop_oneof![
            3 => (1_u32..4).prop_map(RandomChange::Invite),
            4 => (index(), 0_usize..2).prop_map(|(index, customer)| RandomChange::Accept { index, customer }),
            6 => (index(), 0_usize..2, 1_u32..4)
                .prop_map(|(index, customer, units)| RandomChange::Hold { index, customer, units }),
            3 => index().prop_map(RandomChange::Release),
            3 => index().prop_map(RandomChange::Buy),
            1 => Just(RandomChange::Return),
        ];
        prop::collection::vec(change, 0..60)
    }

    /// A quota with its invitations and the units that each holds or has bought.
    struct QuotaModel {
        quota: Quota,
        invitations: Vec<(Invitation, u32)>,
        customers: [CustomerId; 2],
    }

    impl QuotaModel {
        fn apply(&mut self, change: &RandomChange) {
            let now = Timestamp::EPOCH;
            let Self { quota, invitations, customers } = self;
            match *change {
                RandomChange::Invite(units) => {
                    if quota.is_open_at(now) && quota.promise(units).is_ok() {
                        invitations.push((an_invitation(quota, units), 0));
                    }
                }
                RandomChange::Accept { index, customer } => {
                    if let Some((invitation, _)) = invitations.get_mut(index) {
                        let _ = invitation.accept(customers[customer], quota, now);
                    }
                }
                RandomChange::Hold { index, customer, units } => {
                    let Some((invitation, held)) = invitations.get_mut(index) else { return };
                    let may = invitation.check_use(customers[customer], quota, now).is_ok();
                    if may && units <= invitation.unit_count {
                        invitation.hold(HoldId::generate());
                        quota.hold(units);
                        *held = units;
                    }
                }
                RandomChange::Release(index) => {
                    let Some((invitation, held)) = invitations.get_mut(index) else { return };
                    if invitation.state == InvitationState::Accepted && invitation.hold_id.is_some() {
                        let is_kept = quota.release(*held);
                        assert_eq!(is_kept, quota.state == QuotaState::Open);
                        invitation.release(quota);
                        *held = 0;
                    }
                }
                RandomChange::Buy(index) => {
                    let Some((invitation, held)) = invitations.get_mut(index) else { return };
                    if invitation.state == InvitationState::Accepted && invitation.hold_id.is_some() {
                        quota.unpromise(invitation.use_up(*held));
                    }
                }
                RandomChange::Return => {
                    quota.mark_returned();
                    for (invitation, _) in invitations {
                        let is_open =
                            matches!(invitation.state, InvitationState::Pending | InvitationState::Accepted);
                        if is_open && invitation.hold_id.is_none() {
                            invitation.state = InvitationState::Expired;
                        }
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn promises_and_uses_add_up_and_never_exceed_the_quota(changes in changes(), unit_count in 1_u32..12) {
            let customers = [CustomerId::generate(), CustomerId::generate()];
            let mut model = QuotaModel { quota: a_quota(unit_count), invitations: Vec::new(), customers };
            for change in &changes {
                let before: Vec<_> = model.invitations.iter().map(|(it, _)| it.clone()).collect();
                model.apply(change);
                let QuotaModel { quota, invitations, .. } = &model;
                let used: u32 = invitations.iter().map(|(_, units)| units).sum();
                let promised = |(it, units): &(Invitation, u32)| match it.state {
                    InvitationState::Pending | InvitationState::Accepted => it.unit_count - units,
                    InvitationState::Used | InvitationState::Expired => 0,
                };
                let invited: u32 = match quota.state {
                    QuotaState::Open => invitations.iter().map(promised).sum(),
                    QuotaState::Returned => 0,
                };
                prop_assert_eq!((quota.used_count, quota.invited_count), (used, invited), "{:?}", change);
                prop_assert!(used + invited <= unit_count);
                for (was, (is, _)) in before.iter().zip(invitations) {
                    let is_final = matches!(was.state, InvitationState::Used | InvitationState::Expired);
                    prop_assert!(!is_final || was == is, "{:?} moved by {:?}", was, change);
                    prop_assert!(was.accepted.is_none() || was.accepted == is.accepted);
                    let is_bought = is.state == InvitationState::Used;
                    prop_assert!(!is_bought || is.accepted.is_some() && is.hold_id.is_some());
                }
            }
        }
    }
}
