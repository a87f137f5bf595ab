//! A mail server that catches mail: SMTP in; what arrived is listed over HTTP and shown on a page.
