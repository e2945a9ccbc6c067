use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::system_conf::read_system_conf;
use postrider_contract::{Code, Refused};

/// How long an answer is believed at most: a receiver that moves is found again within a minute.
const TTL_MAX: Duration = Duration::from_mins(1);

/// Asks the name servers ourselves: no search domains and no hosts file, which would make names mean something else here.
#[derive(Clone)]
pub(crate) struct Resolver(TokioResolver);

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
        options.positive_max_ttl = Some(TTL_MAX);
        options.negative_max_ttl = Some(TTL_MAX);
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        builder.build().map(Self).map_err(|e| unusable(&e))
    }

    /// Every address of a name, IPv4 first; else why there is none, in words that tell nothing about our network.
    pub(crate) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, &'static str> {
        // The dot at the end makes the name absolute.
        match self.0.lookup_ip(format!("{name}.")).await {
            Ok(found) => Ok(found.iter().collect()),
            Err(e) if e.is_nx_domain() => Err("the name does not exist"),
            Err(e) if e.is_no_records_found() => Err("the name has no address"),
            Err(_) => Err("the name servers did not answer"),
        }
    }
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
