//! Start and shutdown of the service, and refused settings.

use onsale_testkit::service::{self, TestService};

#[tokio::test]
async fn service_becomes_ready_and_drains_cleanly() {
    service::assert_starts_and_drains(
        onsale_notification::SERVICE,
        onsale_notification::DEFAULTS,
        onsale_notification::build,
    )
    .await;
}

#[tokio::test]
async fn invalid_settings_are_named_without_the_password() {
    let settings = [
        ("MAIL__SMTP_URL", "http://user:hunter2@mail.example.com"),
        ("MAIL__FROM", "nobody"),
        ("MAIL__REPLY_TO", "a@b, c@d"),
        ("WEB__URL", "javascript:alert(1)"),
        ("DELIVERY__CONCURRENCY", "0"),
        ("DELIVERY__LEASE", "1s"),
    ];
    let refused = TestService::start_with(
        onsale_notification::SERVICE,
        onsale_notification::DEFAULTS,
        &settings,
        onsale_notification::build,
    )
    .await;
    let message = refused.err().expect("invalid settings stop the service").to_string();
    for key in
        ["mail.smtp_url", "mail.from", "mail.reply_to", "web.url", "delivery.concurrency", "delivery.lease"]
    {
        assert!(message.contains(key), "{key} in {message}");
    }
    assert!(!message.contains("hunter2"), "{message}");
}
