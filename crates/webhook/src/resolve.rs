use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use postrider_contract::{Code, Refused};
use tokio::time::timeout;

/// How long an answer is believed at most: a receiver that moves is found again within a minute.
const TTL_MAX: Duration = Duration::from_mins(1);

/// How long one name server is waited for before it is asked again.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long all of them together have for the addresses of a name.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long they have to show that they are there at all.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Asks the name servers ourselves: no search domains and no hosts file, which would make names mean something else here.
#[derive(Clone)]
pub(crate) struct Resolver {
    names: TokioResolver,
    /// Remembers nothing: what it hears, it hears now.
    probe: TokioResolver,
}

/// Why there are no addresses, in words that tell nothing about our network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAddress {
    /// The name's own trouble.
    Name(&'static str),
    /// Our name servers answer nobody.
    Local(&'static str),
}

impl Resolver {
    /// Asks the name servers of the system; the error names the field `resolv.conf`.
    pub(crate) fn system() -> Result<Self, Refused> {
        let (config, options) = read_system_conf().map_err(|e| unusable(&e))?;
        let (_, _, servers) = config.into_parts();
        Self::build(servers, options)
    }

    /// Asks these servers, over UDP and, for long answers, TCP.
    pub(crate) fn asking(servers: &[SocketAddr]) -> Result<Self, Refused> {
        let servers = servers
            .iter()
            .map(|server| {
                let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
                let connections = connections.map(|mut connection| {
                    connection.port = server.port();
                    connection
                });
                NameServerConfig::new(server.ip(), true, connections.into())
            })
            .collect();
        Self::build(servers, ResolverOpts::default())
    }

    fn build(servers: Vec<NameServerConfig>, mut options: ResolverOpts) -> Result<Self, Refused> {
        options.use_hosts_file = ResolveHosts::Never;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.timeout = ASK_TIMEOUT;
        options.positive_max_ttl = Some(TTL_MAX);
        options.negative_max_ttl = Some(TTL_MAX);
        let names = resolver(servers.clone(), options.clone())?;
        options.positive_max_ttl = Some(Duration::ZERO);
        options.negative_max_ttl = Some(Duration::ZERO);
        Ok(Self { names, probe: resolver(servers, options)? })
    }

    /// Every address of a name, IPv4 first, within a limit of time.
    pub(crate) async fn addresses(&self, name: &str, limit: Duration) -> Result<Vec<IpAddr>, NoAddress> {
        // The dot at the end makes the name absolute.
        let asked = timeout(limit.min(ANSWER_TIMEOUT), self.names.lookup_ip(format!("{name}."))).await;
        match asked {
            Ok(Ok(found)) => Ok(found.iter().collect()),
            Ok(Err(e)) if e.is_nx_domain() => Err(NoAddress::Name("the name does not exist")),
            Ok(Err(e)) if e.is_no_records_found() => Err(NoAddress::Name("the name has no address")),
            Ok(Err(e)) if is_said(&e) => Err(NoAddress::Name("the name cannot be looked up")),
            // Silence is the name's own trouble only if the name servers say something about another one.
            Ok(Err(_)) | Err(_) if self.is_there(limit / 2).await => {
                Err(NoAddress::Name("the name cannot be looked up"))
            }
            Ok(Err(_)) | Err(_) => Err(NoAddress::Local("our name servers do not answer")),
        }
    }

    /// Whether the name servers say anything at all about the root, which they can without asking anybody.
    async fn is_there(&self, limit: Duration) -> bool {
        match timeout(limit.min(PROBE_TIMEOUT), self.probe.lookup(Name::root(), RecordType::NS)).await {
            Ok(Ok(_)) => true,
            Ok(Err(e)) => is_said(&e),
            Err(_) => false,
        }
    }
}

/// Whether an error is something that a name server said.
const fn is_said(error: &NetError) -> bool {
    matches!(error, NetError::Dns(_))
}

fn resolver(servers: Vec<NameServerConfig>, options: ResolverOpts) -> Result<TokioResolver, Refused> {
    let config = ResolverConfig::from_parts(None, Vec::new(), servers);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder.build().map_err(|e| unusable(&e))
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

fn unusable(error: &NetError) -> Refused {
    Refused::new(
        Code::Option,
        "resolv.conf",
        format!("the system's name servers cannot be read: {error}"),
        "name at least one name server in /etc/resolv.conf",
    )
}
