//! What receivers answer and what becomes of it, and what they get to see: on a real Postgres, over real HTTP.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failed helper is a failed test")]

mod stage; // a database, a bus that delivers, endpoints
mod table; // what each answer and each failure comes to
mod verifiers; // what official verifiers say of what is sent
mod leaks; // and where secrets are not seen
