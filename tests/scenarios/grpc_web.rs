//! A purchase by a browser: gRPC-Web frames over HTTP/1.1, assembled by hand.

use onsale::front_door::{FrontDoor, Person};
use onsale_proto::{
    claim::v1::{CreateClaimRequest, CreateClaimResponse, create_claim_request::Right},
    payment::v1::{
        CreatePaymentRequest, CreatePaymentResponse, PaymentState, WatchPaymentRequest, WatchPaymentResponse,
    },
    queue::v1::{
        JoinQueueRequest, JoinQueueResponse, WatchQueueRequest, WatchQueueResponse, queue_update::Update,
    },
    ticketing::v1::{ListTicketsRequest, ListTicketsResponse},
};
use onsale_testkit::wait_until;
use prost::Message;

use super::support::{TIMEOUT, mesh, sale};

/// Flag bit of a frame that contains trailers.
const TRAILERS: u8 = 0x80;

/// Reader of the frames of one response.
struct Frames {
    response: reqwest::Response,
    buffer: Vec<u8>,
}

enum Frame {
    Message(Vec<u8>),
    Trailers(String),
}

impl Frames {
    /// Posts `message` to the method at `path`.
    async fn open(door: &FrontDoor, person: &Person, path: &str, message: &impl Message) -> Self {
        let mut body = vec![0];
        body.extend(u32::try_from(message.encoded_len()).unwrap().to_be_bytes());
        body.extend(message.encode_to_vec());
        let client = reqwest::Client::builder().http1_only().timeout(TIMEOUT).build().unwrap();
        let response = client
            .post(format!("{}{path}", door.url()))
            .header("content-type", "application/grpc-web+proto")
            .header("x-grpc-web", "1")
            .bearer_auth(&person.token)
            .body(body)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.version(), reqwest::Version::HTTP_11);
        // A call that fails before its first message has its status in the headers and no body.
        let status = response.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
        assert!(status.is_none_or(|status| status == "0"), "{path}: {:?}", response.headers());
        Self { response, buffer: Vec::new() }
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(head) = self.buffer.get(..5) {
                let end =
                    5 + usize::try_from(u32::from_be_bytes([head[1], head[2], head[3], head[4]])).unwrap();
                if self.buffer.len() >= end {
                    let flags = self.buffer[0];
                    let frame: Vec<u8> = self.buffer.drain(..end).skip(5).collect();
                    return Some(if flags & TRAILERS == 0 {
                        Frame::Message(frame)
                    } else {
                        Frame::Trailers(String::from_utf8(frame).unwrap())
                    });
                }
            }
            self.buffer.extend(self.response.chunk().await.unwrap()?);
        }
    }

    /// Returns the next message, or `None` after trailers with status OK.
    async fn message<M: Message + Default>(&mut self) -> Option<M> {
        match self.next().await? {
            Frame::Message(bytes) => Some(M::decode(bytes.as_slice()).unwrap()),
            Frame::Trailers(trailers) => {
                let trailers = trailers.replace(' ', "");
                assert!(trailers.contains("grpc-status:0"), "{trailers}");
                None
            }
        }
    }
}

async fn unary<M: Message + Default>(
    door: &FrontDoor,
    person: &Person,
    path: &str,
    message: &impl Message,
) -> M {
    let mut frames = Frames::open(door, person, path, message).await;
    let answer = frames.message().await.unwrap();
    assert!(frames.message::<M>().await.is_none(), "one message, then trailers");
    answer
}

#[tokio::test]
async fn browser_buys_with_grpc_web_frames() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(10)]).await;
    let person = sale::customer(&door).await;
    let event_id = event.event_id.clone();

    let join =
        JoinQueueRequest { request_id: sale::new_id(), event_id: event_id.clone(), ..Default::default() };
    let joined: JoinQueueResponse =
        unary(&door, &person, "/onsale.queue.v1.QueueService/JoinQueue", &join).await;
    assert_eq!(joined.standing.unwrap().entry.unwrap().seq, 1);

    let watch = WatchQueueRequest { event_id: event_id.clone(), ..Default::default() };
    let mut updates = Frames::open(&door, &person, "/onsale.queue.v1.QueueService/WatchQueue", &watch).await;
    let turn = loop {
        let update: WatchQueueResponse = updates.message().await.unwrap();
        if let Some(Update::TurnGranted(granted)) = update.update.unwrap().update {
            break granted.turn.unwrap();
        }
    };
    drop(updates);

    let claim = CreateClaimRequest {
        request_id: sale::new_id(),
        event_id,
        right: Some(Right::TurnToken(turn.token)),
        selections: vec![sale::any_units(&event.sectors[0], 2)],
    };
    let path = "/onsale.claim.v1.ClaimService/CreateClaim";
    let claim: CreateClaimResponse = unary(&door, &person, path, &claim).await;
    let claim_id = claim.claim.unwrap().claim_id;

    let pay = CreatePaymentRequest {
        request_id: sale::new_id(),
        claim_id: claim_id.clone(),
        ..CreatePaymentRequest::default()
    };
    let path = "/onsale.payment.v1.PaymentService/CreatePayment";
    let payment: CreatePaymentResponse = unary(&door, &person, path, &pay).await;
    let payment = payment.payment.unwrap();
    let buyer = sale::buyer(&door, &person, &event.event_id);
    buyer.act_at_provider(&payment, "pay").await.unwrap();

    let watch = WatchPaymentRequest { payment_id: payment.payment_id };
    let path = "/onsale.payment.v1.PaymentService/WatchPayment";
    let mut updates = Frames::open(&door, &person, path, &watch).await;
    let mut last = PaymentState::Unspecified;
    while let Some(update) = updates.message::<WatchPaymentResponse>().await {
        last = update.payment.unwrap().state();
    }
    assert_eq!(last, PaymentState::Confirmed, "the stream ends with OK after the final state");

    let list = ListTicketsRequest { claim_id, ..ListTicketsRequest::default() };
    wait_until("the tickets are issued", TIMEOUT, || async {
        let path = "/onsale.ticketing.v1.TicketService/ListTickets";
        let listed: ListTicketsResponse = unary(&door, &person, path, &list).await;
        listed.tickets.len() == 2
    })
    .await;
    mesh.audit().await;
}
