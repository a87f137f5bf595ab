//! An invitation to a quota: the moves of its state, and whose it is.

use onsale_types::{CustomerId, HoldId, InvitationId, QuotaId, Timestamp};

use super::quota::{Quota, QuotaState};

/// What SMTP can carry.
const ADDRESS_BYTES_MAX: usize = 254;

/// Where an invitation is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvitationState {
    /// Sent.
    Pending,
    /// Bound to a customer, who may hold units with it.
    Accepted,
    /// Its units are bought.
    Used,
    /// Not used in time.
    Expired,
}

impl InvitationState {
    /// Its name, in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Accepted => "ACCEPTED",
            Self::Used => "USED",
            Self::Expired => "EXPIRED",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Accepted, Self::Used, Self::Expired];
        all.into_iter().find(|state| state.name() == name)
    }
}

/// Somebody to invite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitee {
    /// Where to mail to.
    pub email: String,
    /// Most units they may buy.
    pub unit_count: u32,
    /// The mail's language; empty: the default of who mails.
    pub locale: String,
}

/// One person's right to buy from a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Its id.
    pub id: InvitationId,
    /// The quota.
    pub quota_id: QuotaId,
    /// Where it was mailed to.
    pub email: String,
    /// Most units it may buy.
    pub unit_count: u32,
    /// Where it is in its life.
    pub state: InvitationState,
    /// Who accepted it, and when.
    pub accepted: Option<Accepted>,
    /// The hold that has its units now, or bought them.
    pub hold_id: Option<HoldId>,
}

/// Whose an invitation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The customer.
    pub customer_id: CustomerId,
    /// Since when.
    pub time: Timestamp,
}

/// Why an invitation is worth nothing to a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvitationFault {
    /// It must be accepted first.
    #[error("the invitation was not accepted")]
    NotAccepted,
    /// It is another's.
    #[error("another customer accepted the invitation")]
    AcceptedByAnother,
    /// Its time is over.
    #[error("the invitation was not used in time")]
    Expired {
        /// Since then.
        expire_time: Timestamp,
    },
    /// Its units are held or bought.
    #[error("the invitation's units are held or bought")]
    Used,
}

impl Invitation {
    /// Binds it to `customer_id`. True when that is new; false when it is theirs already.
    pub fn accept(
        &mut self,
        customer_id: CustomerId,
        quota: &Quota,
        now: Timestamp,
    ) -> Result<bool, InvitationFault> {
        let is_theirs = self.check_owner(customer_id)?;
        match self.state {
            InvitationState::Used => return Err(InvitationFault::Used),
            // Held units may be paid for after the quota's time too.
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

    /// Whether `customer_id` may hold units with it at `now`.
    pub fn check_use(
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

    /// Its units are in `hold_id` now.
    pub fn hold(&mut self, hold_id: HoldId) {
        self.hold_id = Some(hold_id);
    }

    /// The hold came to nothing: it may be used again, unless its quota is gone.
    pub fn take_back(&mut self, quota: &Quota) {
        self.hold_id = None;
        if quota.state == QuotaState::Returned {
            self.state = InvitationState::Expired;
        }
    }

    /// Its hold was paid. Answers how many of its units were not wanted, of the `bought` ones.
    #[must_use]
    pub fn use_up(&mut self, bought: u32) -> u32 {
        self.state = InvitationState::Used;
        self.unit_count.saturating_sub(bought)
    }

    /// Whether it is this customer's; an error when it is another's.
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

/// Whether `text` is an address such as `ana@example.com`, without a name, that can stand in an envelope and a header.
/// Whether anybody reads there is not checked.
#[must_use]
pub fn is_email(text: &str) -> bool {
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
    fn it_belongs_to_who_accepted_it_first() {
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
    fn it_is_worth_nothing_from_its_quotas_time_on() {
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
    fn it_holds_once_at_a_time_and_buys_once() {
        let quota = a_quota(9);
        let customer = CustomerId::generate();
        let mut invitation = an_invitation(&quota, 3);
        let now = Timestamp::EPOCH;
        invitation.accept(customer, &quota, now).unwrap();
        invitation.hold(HoldId::generate());
        assert_eq!(invitation.check_use(customer, &quota, now), Err(InvitationFault::Used));
        invitation.take_back(&quota);
        assert_eq!(invitation.check_use(customer, &quota, now), Ok(()));
        invitation.hold(HoldId::generate());
        assert_eq!(invitation.use_up(2), 1);
        assert_eq!(invitation.check_use(customer, &quota, now), Err(InvitationFault::Used));
        assert_eq!(invitation.accept(customer, &quota, now), Err(InvitationFault::Used));
    }

    #[test]
    fn an_address_has_two_parts_and_nothing_that_ends_a_header() {
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

    /// What may happen to a quota and its invitations.
    #[derive(Clone, Debug)]
    enum Step {
        Invite(u32),
        Accept { index: usize, customer: usize },
        Hold { index: usize, customer: usize, units: u32 },
        Release(usize),
        Buy(usize),
        Return,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = || 0_usize..4;
        let step = prop_oneof![
            3 => (1_u32..4).prop_map(Step::Invite),
            4 => (index(), 0_usize..2).prop_map(|(index, customer)| Step::Accept { index, customer }),
            6 => (index(), 0_usize..2, 1_u32..4)
                .prop_map(|(index, customer, units)| Step::Hold { index, customer, units }),
            3 => index().prop_map(Step::Release),
            3 => index().prop_map(Step::Buy),
            1 => Just(Step::Return),
        ];
        prop::collection::vec(step, 0..60)
    }

    /// A quota, its invitations and the units that each holds or bought.
    struct Books {
        quota: Quota,
        invitations: Vec<(Invitation, u32)>,
        customers: [CustomerId; 2],
    }

    impl Books {
        fn take(&mut self, step: &Step) {
            let now = Timestamp::EPOCH;
            let Self { quota, invitations, customers } = self;
            match *step {
                Step::Invite(units) => {
                    if quota.is_open_at(now) && quota.promise(units).is_ok() {
                        invitations.push((an_invitation(quota, units), 0));
                    }
                }
                Step::Accept { index, customer } => {
                    if let Some((invitation, _)) = invitations.get_mut(index) {
                        let _ = invitation.accept(customers[customer], quota, now);
                    }
                }
                Step::Hold { index, customer, units } => {
                    let Some((invitation, held)) = invitations.get_mut(index) else { return };
                    let may = invitation.check_use(customers[customer], quota, now).is_ok();
                    if may && units <= invitation.unit_count {
                        invitation.hold(HoldId::generate());
                        quota.hold(units);
                        *held = units;
                    }
                }
                Step::Release(index) => {
                    let Some((invitation, held)) = invitations.get_mut(index) else { return };
                    if invitation.state == InvitationState::Accepted && invitation.hold_id.is_some() {
                        let is_kept = quota.take_back(*held);
                        assert_eq!(is_kept, quota.state == QuotaState::Open);
                        invitation.take_back(quota);
                        *held = 0;
                    }
                }
                Step::Buy(index) => {
                    let Some((invitation, held)) = invitations.get_mut(index) else { return };
                    if invitation.state == InvitationState::Accepted && invitation.hold_id.is_some() {
                        quota.forgo(invitation.use_up(*held));
                    }
                }
                Step::Return => {
                    quota.give_up();
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
        fn promises_and_uses_always_add_up_and_never_exceed_the_quota(steps in steps(), unit_count in 1_u32..12) {
            let customers = [CustomerId::generate(), CustomerId::generate()];
            let mut books = Books { quota: a_quota(unit_count), invitations: Vec::new(), customers };
            for step in &steps {
                let before: Vec<_> = books.invitations.iter().map(|(it, _)| it.clone()).collect();
                books.take(step);
                let Books { quota, invitations, .. } = &books;
                let used: u32 = invitations.iter().map(|(_, units)| units).sum();
                let promised = |(it, units): &(Invitation, u32)| match it.state {
                    InvitationState::Pending | InvitationState::Accepted => it.unit_count - units,
                    InvitationState::Used | InvitationState::Expired => 0,
                };
                let invited: u32 = match quota.state {
                    QuotaState::Open => invitations.iter().map(promised).sum(),
                    QuotaState::Returned => 0,
                };
                prop_assert_eq!((quota.used_count, quota.invited_count), (used, invited), "{:?}", step);
                prop_assert!(used + invited <= unit_count);
                for (was, (is, _)) in before.iter().zip(invitations) {
                    let is_final = matches!(was.state, InvitationState::Used | InvitationState::Expired);
                    prop_assert!(!is_final || was == is, "{:?} moved by {:?}", was, step);
                    prop_assert!(was.accepted.is_none() || was.accepted == is.accepted);
                    let is_bought = is.state == InvitationState::Used;
                    prop_assert!(!is_bought || is.accepted.is_some() && is.hold_id.is_some());
                }
            }
        }
    }
}
