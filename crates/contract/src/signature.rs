//! Standard Webhooks: sign and verify.
