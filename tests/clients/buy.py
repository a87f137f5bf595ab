"""Buys two tickets with grpcio, which reads the contracts by reflection only.

    python buy.py http://127.0.0.1:8080 EVENT_ID SECTOR_ID
"""

import json
import sys
import time
import urllib.request
import uuid

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

TIMEOUT_SECONDS = 90


def post(url, body=None):
    """Posts JSON and returns the JSON response."""
    data = json.dumps(body or {}).encode()
    headers = {"content-type": "application/json", "accept": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"{}")


class Services:
    """Calls methods by service and method name, with messages built from reflected descriptors."""

    def __init__(self, channel, token):
        self.channel = channel
        self.metadata = [("authorization", f"Bearer {token}")]
        self.pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))

    def call(self, service, method, **fields):
        descriptor = self.pool.FindServiceByName(service).FindMethodByName(method)
        request = message_factory.GetMessageClass(descriptor.input_type)(**fields)
        make = self.channel.unary_stream if descriptor.server_streaming else self.channel.unary_unary
        stub = make(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(descriptor.output_type).FromString,
        )
        return stub(request, metadata=self.metadata, timeout=TIMEOUT_SECONDS)


def main(front_door, event_id, sector_id):
    email = f"python-{uuid.uuid4()}@example.test"
    token = post(f"{front_door}/dev/sign-in", {"email": email})["token"]
    with grpc.insecure_channel(front_door.removeprefix("http://")) as channel:
        services = Services(channel, token)
        request_id = lambda: str(uuid.uuid4())

        queue = "onsale.queue.v1.QueueService"
        standing = services.call(queue, "JoinQueue", request_id=request_id(), event_id=event_id).standing
        print(f"joined the queue as number {standing.entry.seq}")
        turn_token = standing.turn.token
        if not turn_token:
            for response in services.call(queue, "WatchQueue", event_id=event_id):
                if response.update.WhichOneof("update") == "turn_granted":
                    turn_token = response.update.turn_granted.turn.token
                    break

        selections = [{"sector_id": sector_id, "count": 2}]
        claim = services.call(
            "onsale.claim.v1.ClaimService",
            "CreateClaim",
            request_id=request_id(),
            event_id=event_id,
            turn_token=turn_token,
            selections=selections,
        ).claim
        print(f"claimed for {claim.total.amount_minor} {claim.total.currency_code}")

        payments = "onsale.payment.v1.PaymentService"
        payment = services.call(payments, "CreatePayment", request_id=request_id(), claim_id=claim.claim_id).payment
        post(f"{payment.checkout_url}/pay")
        for response in services.call(payments, "WatchPayment", payment_id=payment.payment_id):
            payment = response.payment
        print(f"payment state {payment.state}")

        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            tickets = services.call("onsale.ticketing.v1.TicketService", "ListTickets", claim_id=claim.claim_id).tickets
            if len(tickets) == 2:
                print("2 tickets")
                return
            time.sleep(0.2)
    sys.exit(f"the tickets were not issued within {TIMEOUT_SECONDS} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
