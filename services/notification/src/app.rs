//! What Notification does: takes in facts and jobs, sends what is due, and lets organizers see what could not be sent.

mod enqueue_notifications;
mod list_dead_letters;
mod send_delivery;
mod update_order;

use std::{sync::Arc, time::Duration};

use onsale_storage::Stores;
use tokio::sync::Notify;

use crate::{
    clients::Mailer,
    config::{DeliveryConfig, WebConfig},
    domain::language::Language,
};

pub use enqueue_notifications::Enqueued;
pub use list_dead_letters::{DeadLetters, ListDeadLetters};
pub use send_delivery::{Attempt, DeliverError};

/// What handlers, consumers and workers share.
pub struct App {
    stores: Stores,
    mailer: Arc<dyn Mailer>,
    web_url: String,
    delivery: DeliveryConfig,
    pauses: Vec<Duration>,
    /// Says to the worker of this process that there is something new. A hint: it looks by itself too.
    hint: Notify,
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(stores: Stores, mailer: Arc<dyn Mailer>, web: WebConfig, delivery: DeliveryConfig) -> Self {
        let pauses = delivery.pauses();
        Self { stores, mailer, web_url: web.url, delivery, pauses, hint: Notify::new() }
    }

    /// The language of those who have not said theirs.
    #[must_use]
    pub fn language_default(&self) -> Language {
        self.delivery.locale_default
    }

    /// How deliveries are worked off.
    #[must_use]
    pub fn delivery_config(&self) -> &DeliveryConfig {
        &self.delivery
    }

    /// Done when somebody hinted at something new.
    pub async fn hinted(&self) {
        self.hint.notified().await;
    }
}
