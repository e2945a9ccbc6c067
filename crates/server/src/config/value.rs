use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;
use postrider::contract::check_name;
use postrider::{Pooler, WakeUps};
use secrecy::SecretString;
use sqlx::postgres::PgConnectOptions;

use super::Role;

/// What is wrong with a value, and what to write instead. It never repeats the value: that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) message: String,
    pub(super) remedy: String,
}

fn wrong<T>(message: impl Into<String>, remedy: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { message: message.into(), remedy: remedy.into() })
}

/// A name, as types and kinds have them.
pub(super) fn name(text: &str) -> Result<String, Wrong> {
    match check_name("instance", text) {
        Ok(()) => Ok(text.to_owned()),
        Err(refused) => wrong("it is not a name", refused.remedy),
    }
}

/// A whole number within a range.
pub(super) fn whole<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, Wrong>
where
    N: FromStr + PartialOrd + Display,
{
    move |text| match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        Ok(number) => wrong(
            format!("{number} is out of range"),
            format!("write a whole number from {} to {}", range.start(), range.end()),
        ),
        Err(_) => wrong(
            "it is not a whole number in range",
            format!("write a whole number from {} to {}", range.start(), range.end()),
        ),
    }
}

pub(super) fn rate(text: &str) -> Result<f64, Wrong> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 100_000.0 => Ok(rate),
        _ => wrong("it is not a rate", "write events per second, above 0 and at most 100000"),
    }
}

pub(super) fn address(text: &str) -> Result<SocketAddr, Wrong> {
    text.parse().or_else(|_| {
        wrong(
            "it is not an address with a port",
            "write an IP address and a port, such as 127.0.0.1:7117 or [::1]:7117",
        )
    })
}

pub(super) fn path(text: &str) -> Result<PathBuf, Wrong> {
    if text.is_empty() || text.contains('\0') {
        return wrong("it is not a path", "write the path, or leave the name out");
    }
    Ok(PathBuf::from(text))
}

pub(super) fn database_url(text: &str) -> Result<SecretString, Wrong> {
    let remedy = "write postgres://user:password@host:5432/database";
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return wrong("it does not begin with postgres://", remedy);
    }
    // The driver's own message may hold a part of the URL, and so of the password.
    match PgConnectOptions::from_str(text) {
        Ok(_) => Ok(SecretString::from(text.to_owned())),
        Err(_) => wrong("it is not a URL of a Postgres database", remedy),
    }
}

pub(super) fn pooler(text: &str) -> Result<Pooler, Wrong> {
    match text {
        "none" => Ok(Pooler::None),
        "transaction" => Ok(Pooler::Transaction),
        _ => wrong("it is not a mode of a pooler", "write none or transaction"),
    }
}

pub(super) fn wake_ups(text: &str) -> Result<WakeUps, Wrong> {
    match text {
        "listen" => Ok(WakeUps::Listen),
        "poll" => Ok(WakeUps::Poll),
        _ => wrong("it is not a way to wake up", "write listen or poll"),
    }
}

pub(super) fn seal_keys(text: &str) -> Result<Vec<SecretString>, Wrong> {
    let keys: Vec<&str> = items(text).collect();
    if !keys.is_empty() && keys.iter().all(|key| is_base64_of_32_bytes(key)) {
        return Ok(keys.into_iter().map(SecretString::from).collect());
    }
    wrong("it is not 32 bytes in base64", "make one with: openssl rand -base64 32")
}

/// 32 bytes are 43 digits and one `=`; the last digit carries four bits, so its two low ones are zero.
fn is_base64_of_32_bytes(text: &str) -> bool {
    let Some(digits) = text.strip_suffix('=') else { return false };
    digits.len() == 43
        && digits.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
        && digits.ends_with(|last: char| "AEIMQUYcgkosw048".contains(last))
}

pub(super) fn log(text: &str) -> Result<String, Wrong> {
    match tracing_subscriber::EnvFilter::builder().parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => wrong("it is not a filter", "write a level such as info, or pairs such as warn,postrider=debug"),
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

pub(super) fn cidrs(text: &str) -> Result<Vec<IpNet>, Wrong> {
    let cidr = |item: &str| {
        item.parse::<IpNet>().or_else(|_| {
            wrong(format!("{item:?} is not a CIDR"), "write an address and a prefix length, such as 10.0.0.0/8")
        })
    };
    items(text).map(cidr).collect()
}

pub(super) fn roles(text: &str) -> Result<Vec<Role>, Wrong> {
    let remedy = "write at least one of relay, work and housekeeping, each once";
    let mut roles = Vec::new();
    for item in items(text) {
        let role = match item {
            "relay" => Role::Relay,
            "work" => Role::Work,
            "housekeeping" => Role::Housekeeping,
            _ => return wrong(format!("{item:?} is not a role"), remedy),
        };
        if roles.contains(&role) {
            return wrong(format!("{item} is there twice"), remedy);
        }
        roles.push(role);
    }
    if roles.is_empty() {
        return wrong("it names no role", remedy);
    }
    Ok(roles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_key_is_what_openssl_prints() {
        // From `openssl rand -base64 32`, and 32 zero bytes.
        for good in ["q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="] {
            assert_eq!(seal_keys(good).unwrap().len(), 1, "{good}");
            assert_eq!(seal_keys(&format!("{good}, {good}")).unwrap().len(), 2, "{good}");
        }
        for bad in [
            "",
            "AAAA",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB=",
            "_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ] {
            assert!(seal_keys(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_forgive_spaces_and_nothing_else() {
        assert_eq!(cidrs("10.0.0.0/8, fd00::/8").unwrap().len(), 2);
        assert!(cidrs("").unwrap().is_empty());
        assert!(cidrs("10.0.0.0").is_err());
        assert_eq!(roles("relay, work").unwrap(), [Role::Relay, Role::Work]);
        for bad in ["", "relay,relay", "Relay", "all"] {
            assert!(roles(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rate_is_a_number_that_a_feeder_can_keep() {
        assert!((rate("0.5").unwrap() - 0.5).abs() < f64::EPSILON);
        for bad in ["0", "-1", "NaN", "inf", "100001", "fast", ""] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
