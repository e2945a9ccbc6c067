use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use postrider_contract::{Code, Refused};

use crate::address::is_public;
use crate::resolve::{NoAddress, Resolver};
use crate::target::{Target, TargetHost};

/// What a blocked delivery says, always: another text would tell what is behind the wall.
pub const BLOCKED: &str = "the endpoint's address is not allowed";

/// How long a check at the door waits for name servers; every attempt resolves again.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Decides which addresses an endpoint may have: public ones, and those of the deployment's allow-list.
#[derive(Debug, Clone)]
pub struct Guard {
    allowed: Vec<IpNet>,
    resolver: Resolver,
}

/// An address that passed the guard. Only [`Guard`] makes one, and only a `Vetted` is ever connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vetted(IpAddr);

impl Vetted {
    /// The address.
    pub const fn address(self) -> IpAddr {
        self.0
    }
}

/// The guard said no; see [`BLOCKED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{BLOCKED}")]
pub struct Blocked;

/// Why a target has no address to connect to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unresolved {
    /// At least one of its addresses is not allowed.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// The name servers gave none.
    #[error("{0}")]
    Dns(&'static str),
    /// They could not be asked.
    #[error("{0}")]
    Local(&'static str),
}

impl Guard {
    /// A guard that asks the system's name servers, and lets through what is public or within one of these networks.
    ///
    /// Networks are written as CIDRs, such as `10.20.0.0/16`; names are never allowed, since whoever runs their zone
    /// decides where they lead. The error names the field `allow`.
    pub fn new<T: AsRef<str>>(allow: impl IntoIterator<Item = T>) -> Result<Self, Refused> {
        Ok(Self { allowed: networks(allow)?, resolver: Resolver::system()? })
    }

    /// The same guard, asking these name servers instead of the system's.
    pub fn asking(self, servers: &[SocketAddr]) -> Result<Self, Refused> {
        Ok(Self { allowed: self.allowed, resolver: Resolver::asking(servers)? })
    }

    /// Checks a URL at the door: its form, and the addresses that it has now.
    ///
    /// A name that has no address at this moment passes: every attempt is checked again. The error names the field `url`.
    pub async fn check(&self, url: &str) -> Result<Target, Refused> {
        let target = self.parse(url)?;
        match self.resolve(&target, CHECK_TIMEOUT).await {
            Err(Unresolved::Blocked(Blocked)) => Err(blocked()),
            Ok(_) | Err(Unresolved::Dns(_) | Unresolved::Local(_)) => Ok(target),
        }
    }

    /// The part of [`Guard::check`] that asks nobody: form, scheme, port, name, and the address if the host is one.
    pub fn parse(&self, url: &str) -> Result<Target, Refused> {
        let target = Target::parse(url)?;
        if !target.is_https() && self.allowed.is_empty() {
            return Err(Refused::new(Code::Option, "url", "it is not https", "use https"));
        }
        if let TargetHost::Address(address) = target.host() {
            self.vet_for(&target, *address).map_err(|Blocked| blocked())?;
        }
        Ok(target)
    }

    /// Judges one address.
    pub fn vet(&self, address: IpAddr) -> Result<Vetted, Blocked> {
        if is_public(address) || self.allows(address) { Ok(Vetted(address)) } else { Err(Blocked) }
    }

    /// All addresses of a target, each of them vetted: one bad answer among good ones is an attempt to get in.
    pub(crate) async fn resolve(&self, target: &Target, limit: Duration) -> Result<Vec<Vetted>, Unresolved> {
        let addresses = match target.host() {
            TargetHost::Address(address) => vec![*address],
            TargetHost::Name(name) => self.resolver.addresses(name, limit).await.map_err(|why| match why {
                NoAddress::Name(detail) => Unresolved::Dns(detail),
                NoAddress::Local(detail) => Unresolved::Local(detail),
            })?,
        };
        if addresses.is_empty() {
            return Err(Unresolved::Dns("the name has no address"));
        }
        Ok(addresses.into_iter().map(|address| self.vet_for(target, address)).collect::<Result<_, _>>()?)
    }

    /// Without TLS nobody proves who answers, so only the deployment's own networks will do.
    fn vet_for(&self, target: &Target, address: IpAddr) -> Result<Vetted, Blocked> {
        if target.is_https() || self.allows(address) { self.vet(address) } else { Err(Blocked) }
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.allowed.iter().any(|network| network.contains(&address))
    }
}

fn networks<T: AsRef<str>>(allow: impl IntoIterator<Item = T>) -> Result<Vec<IpNet>, Refused> {
    allow
        .into_iter()
        .map(|text| {
            let text = text.as_ref();
            text.parse::<IpNet>().map(|network| network.trunc()).map_err(|_| {
                let remedy =
                    "write networks as CIDRs, for example 10.20.0.0/16 or 127.0.0.1/32; names cannot be allowed";
                Refused::new(Code::Option, "allow", format!("{text:?} is not a network"), remedy)
            })
        })
        .collect()
}

fn blocked() -> Refused {
    Refused::new(Code::Option, "url", BLOCKED, "use a public address, or have the operator allow the network")
}
