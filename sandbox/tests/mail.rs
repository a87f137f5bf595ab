//! Tests of the mail catcher over real SMTP and HTTP connections.

#![cfg(test)]

use std::{net::SocketAddr, path::Path, time::Duration};

use onsale_sandbox::mail::{Behaviour, Catcher, Config, Mail, Query};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const TIMEOUT: Duration = Duration::from_secs(10);

/// A minimal SMTP client that sends raw commands.
struct SmtpClient {
    stream: TcpStream,
    received: Vec<u8>,
}

impl SmtpClient {
    async fn connect(address: SocketAddr) -> Self {
        let mut client = Self { stream: TcpStream::connect(address).await.unwrap(), received: Vec::new() };
        assert!(client.reply().await.starts_with("220 "));
        client
    }

    /// Reads the next reply, all its lines included.
    async fn reply(&mut self) -> String {
        let mut reply = String::new();
        loop {
            let line = self.line().await;
            reply.push_str(&line);
            if line.as_bytes().get(3) != Some(&b'-') {
                return reply;
            }
        }
    }

    /// Reads one line. Empty: the server has closed the connection.
    async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return String::from_utf8(line).unwrap();
            }
            let mut part = [0; 4096];
            let read =
                timeout(TIMEOUT, self.stream.read(&mut part)).await.expect("the server replies or closes");
            match read {
                Ok(0) | Err(_) => return String::new(),
                Ok(count) => self.received.extend_from_slice(&part[..count]),
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn command(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes()).await;
        self.reply().await
    }

    /// Sends a complete mail and returns the reply to its text.
    async fn send_mail(&mut self, to: &str, text: &str) -> String {
        assert!(self.command("MAIL FROM:<shop@example.com>").await.starts_with("250"));
        assert!(self.command(&format!("RCPT TO:<{to}>")).await.starts_with("250"));
        assert!(self.command("DATA").await.starts_with("354"));
        self.command(&format!("{text}\r\n.")).await
    }
}

async fn start(folder: &Path) -> Catcher {
    Catcher::start(Config::new(folder)).await.unwrap()
}

async fn list_mails(catcher: &Catcher) -> Vec<Mail> {
    catcher.mails(&Query::default()).await.unwrap()
}

/// Sends one HTTP request and returns status line, headers and body as one text.
async fn http(catcher: &Catcher, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(catcher.http_address()).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: catcher\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    timeout(TIMEOUT, stream.read_to_string(&mut response)).await.unwrap().unwrap();
    response
}

#[tokio::test]
async fn mail_is_stored_without_dot_stuffing_and_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let catcher = start(folder.path()).await;
    let mut client = SmtpClient::connect(catcher.smtp_address()).await;
    let offer = client.command("EHLO test").await;
    for extension in ["PIPELINING", "8BITMIME", "SIZE 4194304"] {
        assert!(offer.contains(extension), "{offer}");
    }
    let text = "Message-ID: <one@example.com>\r\nSubject: =?utf-8?b?xIxha292ZWM=?=\r\n\
        Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n..dotted\r\n....\r\nšđ";
    assert!(client.send_mail("ana@example.com", text).await.starts_with("250"));
    assert!(client.command("QUIT").await.starts_with("221"));
    assert_eq!(client.line().await, "", "the connection closes");

    let [mail] = list_mails(&catcher).await.try_into().unwrap();
    assert_eq!(
        (mail.from.as_str(), mail.to.as_slice()),
        ("shop@example.com", &["ana@example.com".to_owned()][..])
    );
    assert_eq!(mail.subject, "Čakovec");
    assert_eq!(mail.message_id.as_deref(), Some("one@example.com"));
    assert_eq!(mail.text.as_deref().map(str::trim_end), Some(".dotted\r\n...\r\nšđ"));
    assert!(mail.headers.iter().any(|header| header.name == "Message-ID"));
    catcher.stop().await;
}

#[tokio::test]
async fn pipelined_commands_are_answered_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let catcher = start(folder.path()).await;
    let mut client = SmtpClient::connect(catcher.smtp_address()).await;
    client.send(b"EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nRCPT TO:<e@f>\r\nDATA\r\n").await;
    let mut codes = Vec::new();
    for _ in 0..5 {
        codes.push(client.reply().await[..3].to_owned());
    }
    assert_eq!(codes, ["250", "250", "250", "250", "354"]);
    client.send(b"Subject: x\r\n\r\ny\r\n.\r\nNOOP\r\nRSET\r\nQUIT\r\n").await;
    for code in ["250", "250", "250", "221"] {
        assert!(client.reply().await.starts_with(code));
    }
    assert_eq!(list_mails(&catcher).await[0].to, ["c@d", "e@f"]);
    catcher.stop().await;
}

#[tokio::test]
async fn oversized_mail_is_refused_and_the_next_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { mail_bytes_max: 1_000, ..Config::new(folder.path()) };
    let catcher = Catcher::start(config).await.unwrap();
    let mut client = SmtpClient::connect(catcher.smtp_address()).await;
    assert!(client.command("MAIL FROM:<a@b> SIZE=1001").await.starts_with("552"));
    assert!(client.send_mail("a@b", &"x".repeat(1_001)).await.starts_with("552"));
    assert!(client.send_mail("a@b", "Subject: small\r\n\r\nx").await.starts_with("250"));
    // After four times the limit the connection is closed.
    client.command("MAIL FROM:<a@b>").await;
    client.command("RCPT TO:<a@b>").await;
    client.command("DATA").await;
    client.send(&b"x\r\n".repeat(2_000)).await;
    assert_eq!(client.line().await, "");
    assert_eq!(list_mails(&catcher).await.len(), 1);
    catcher.stop().await;
}

#[tokio::test]
async fn invalid_commands_are_refused_and_twenty_close_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let catcher = start(folder.path()).await;
    let mut client = SmtpClient::connect(catcher.smtp_address()).await;
    assert!(client.command("DATA").await.starts_with("503"));
    assert!(client.command("RCPT TO:<a@b>").await.starts_with("503"));
    assert!(client.command("MAIL FROM:nobody").await.starts_with("501"));
    assert!(client.command(&"x".repeat(10_000)).await.starts_with("500"));
    client.send(b"\xff\xfe\x00\r\n").await;
    assert!(client.reply().await.starts_with("500"));
    let mut last = String::new();
    for _ in 0..20 {
        last = client.command("GET / HTTP/1.1").await;
        if !last.starts_with("500") {
            break;
        }
    }
    assert!(last.starts_with("421"), "{last}");
    assert_eq!(client.line().await, "");
    catcher.stop().await;
}

#[tokio::test]
async fn slow_clients_and_excess_connections_receive_421() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        connections_max: 2,
        command_timeout: Duration::from_secs(1),
        data_timeout: Duration::from_secs(1),
        ..Config::new(folder.path())
    };
    let catcher = Catcher::start(config).await.unwrap();
    let mut silent = SmtpClient::connect(catcher.smtp_address()).await;
    let mut sending = SmtpClient::connect(catcher.smtp_address()).await;
    let mut third = SmtpClient {
        stream: TcpStream::connect(catcher.smtp_address()).await.unwrap(),
        received: Vec::new(),
    };
    assert!(third.reply().await.starts_with("421"));
    sending.send(b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nSubject: never ends\r\n").await;
    for code in ["250", "250", "354", "421"] {
        assert!(sending.reply().await.starts_with(code), "{code}");
    }
    assert!(silent.reply().await.starts_with("421"));
    assert!(list_mails(&catcher).await.is_empty());
    // The permits are returned shortly after the connections close.
    let free = async {
        loop {
            let stream = TcpStream::connect(catcher.smtp_address()).await.unwrap();
            if (SmtpClient { stream, received: Vec::new() }).reply().await.starts_with("220") {
                break;
            }
        }
    };
    timeout(TIMEOUT, free).await.expect("a permit is returned");
    catcher.stop().await;
}

#[tokio::test]
async fn concurrent_clients_keep_the_newest_thirty_mails() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { mails_max: 30, ..Config::new(folder.path()) };
    let catcher = Catcher::start(config).await.unwrap();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8 {
        let address = catcher.smtp_address();
        clients.spawn(async move {
            let mut smtp = SmtpClient::connect(address).await;
            for mail in 0..5 {
                let text = format!("Subject: {client}-{mail}\r\n\r\nx");
                assert!(smtp.send_mail("a@b", &text).await.starts_with("250"));
            }
        });
    }
    clients.join_all().await;
    assert_eq!(list_mails(&catcher).await.len(), 30);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 30);
    catcher.stop().await;
}

#[tokio::test]
async fn restart_keeps_stored_mails() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(folder.path()).await;
    let mut client = SmtpClient::connect(first.smtp_address()).await;
    for subject in ["one", "two"] {
        client.send_mail("a@b", &format!("Subject: {subject}\r\n\r\nx")).await;
    }
    let before = list_mails(&first).await;
    first.stop().await;
    std::fs::write(folder.path().join("notes.txt"), "not a mail").unwrap();
    let second = start(folder.path()).await;
    assert_eq!(list_mails(&second).await, before);
    let subjects: Vec<_> = before.iter().map(|mail| mail.subject.as_str()).collect();
    assert_eq!(subjects, ["two", "one"]);
    second.stop().await;
}

#[tokio::test]
async fn injected_faults_reject_mails_and_withhold_replies() {
    let folder = tempfile::tempdir().unwrap();
    let catcher = start(folder.path()).await;
    let response = http(&catcher, "POST", "/sandbox/behaviour", r#"{"reject_next": 1}"#).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let mut client = SmtpClient::connect(catcher.smtp_address()).await;
    assert!(client.command("MAIL FROM:<a@b>").await.starts_with("451"));
    assert!(client.send_mail("a@b", "Subject: taken\r\n\r\nx").await.starts_with("250"));
    catcher.behave(Behaviour { close_after_data_next: 1, ..Behaviour::default() });
    assert_eq!(client.send_mail("a@b", "Subject: unanswered\r\n\r\nx").await, "");
    assert_eq!(list_mails(&catcher).await[0].subject, "unanswered");
    catcher.stop().await;
}

#[tokio::test]
async fn http_api_lists_filters_returns_and_deletes_mails() {
    let folder = tempfile::tempdir().unwrap();
    let catcher = start(folder.path()).await;
    let mut client = SmtpClient::connect(catcher.smtp_address()).await;
    for to in ["ana@example.com", "iva@example.com"] {
        client.send_mail(to, &format!("Subject: for {to}\r\n\r\nx")).await;
    }
    let list = http(&catcher, "GET", "/api/mails?to=Ana@example.com&limit=9", "").await;
    assert!(list.contains("for ana@example.com") && !list.contains("for iva@example.com"), "{list}");
    let id = list_mails(&catcher).await[0].id;
    let one = http(&catcher, "GET", &format!("/api/mails/{id}"), "").await;
    assert!(one.contains(&json!("for iva@example.com").to_string()), "{one}");
    for path in
        ["/api/mails/00000000-0000-0000-0000-000000000001", "/mails/00000000-0000-0000-0000-000000000001"]
    {
        assert!(http(&catcher, "GET", path, "").await.starts_with("HTTP/1.1 404"), "{path}");
    }
    for path in ["/api/mails/..%2f..%2fetc%2fpasswd", "/mails/x"] {
        assert!(http(&catcher, "GET", path, "").await.starts_with("HTTP/1.1 4"), "{path}");
    }
    assert!(http(&catcher, "DELETE", "/api/mails", "").await.starts_with("HTTP/1.1 204"));
    assert!(list_mails(&catcher).await.is_empty());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    catcher.stop().await;
}

#[tokio::test]
async fn embedded_pictures_are_shown_on_the_page_of_a_mail() {
    let folder = tempfile::tempdir().unwrap();
    let catcher = start(folder.path()).await;
    let mut client = SmtpClient::connect(catcher.smtp_address()).await;
    let text = "Subject: hi\r\nMIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=b\r\n\r\n\
        --b\r\nContent-Type: text/html\r\n\r\n<img src=\"cid:one@shop\">\r\n\
        --b\r\nContent-Type: image/png\r\nContent-ID: <one@shop>\r\nContent-Disposition: inline\r\n\
        Content-Transfer-Encoding: base64\r\n\r\niVBORw==\r\n--b--";
    client.send_mail("a@b", text).await;
    let [mail] = list_mails(&catcher).await.try_into().unwrap();
    assert!(mail.html.unwrap().contains("cid:one@shop"), "the JSON keeps the original reference");
    let [picture] = mail.pictures.try_into().unwrap();
    assert_eq!((picture.content_id.as_str(), picture.content.as_str()), ("one@shop", "iVBORw=="));
    let page = http(&catcher, "GET", &format!("/mails/{}", mail.id), "").await;
    assert!(page.contains("data:image/png;base64,iVBORw=="), "{page}");
    catcher.stop().await;
}

#[tokio::test]
async fn start_deletes_partial_files_of_a_killed_catcher() {
    let folder = tempfile::tempdir().unwrap();
    let half = folder.path().join("01980000-0000-7000-8000-000000000001.tmp");
    let foreign = folder.path().join("notes.tmp");
    for path in [&half, &foreign] {
        std::fs::write(path, "X-Catcher").unwrap();
    }
    let catcher = start(folder.path()).await;
    assert!(!half.exists() && foreign.exists());
    assert!(list_mails(&catcher).await.is_empty());
    catcher.stop().await;
}

#[tokio::test]
async fn pages_escape_the_content_of_mails() {
    let folder = tempfile::tempdir().unwrap();
    let catcher = start(folder.path()).await;
    let mut client = SmtpClient::connect(catcher.smtp_address()).await;
    let text = "Subject: <script>alert(1)</script>\r\nX-Evil: </pre><script>\r\nContent-Type: text/html\r\n\r\n\
        \"></iframe><script>alert(2)</script>";
    client.send_mail("a@b", text).await;
    let id = list_mails(&catcher).await[0].id;
    for path in ["/".to_owned(), format!("/mails/{id}")] {
        let page = http(&catcher, "GET", &path, "").await;
        assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&lt;script&gt;") || page.contains("&#60;script&#62;"), "{page}");
    }
    let page = http(&catcher, "GET", &format!("/mails/{id}"), "").await;
    assert_eq!(page.matches("</iframe>").count(), 1, "{page}");
    assert!(page.contains("<iframe sandbox=\"\""));
    catcher.stop().await;
}
