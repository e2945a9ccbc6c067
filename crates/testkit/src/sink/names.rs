use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::lock;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const SERVFAIL: u8 = 2;
const NXDOMAIN: u8 = 3;
const TRUNCATED: u8 = 0x02;
/// Longer answers are cut and asked for again over TCP.
const UDP_BYTES_MAX: usize = 1_232;
const CNAMES_MAX: usize = 8;
const PORTS_TRIED_MAX: usize = 20;

/// What a name server says when it is asked for the addresses of a name.
#[derive(Debug, Clone)]
pub enum Said {
    /// These; those of the family that was asked for. None at all: the name does not exist.
    Addresses(Vec<IpAddr>),
    /// That it is another name for this one, and what is said of that one.
    Cname(String),
    /// That the name is there and has no address.
    NoAddress,
    /// That the name does not exist.
    NoSuchName,
    /// That it could not find out.
    ServFail,
    /// Nothing.
    Silent,
    /// Bytes that are no answer.
    Garbage,
    /// The other thing, later.
    After(Duration, Box<Said>),
}

impl Said {
    /// These addresses.
    ///
    /// # Panics
    /// If one of them is none.
    pub fn addresses(addresses: &[&str]) -> Self {
        let parse = |text: &&str| text.parse().unwrap_or_else(|e| panic!("{text:?} is no address: {e}"));
        Self::Addresses(addresses.iter().map(parse).collect())
    }
}

/// A name server that answers over UDP and TCP from a table, with a time to live of 0. Its task ends with it.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Zone {
    names: HashMap<String, Name>,
    asked: Vec<String>,
}

#[derive(Debug, Default)]
struct Name {
    script: Vec<Said>,
    /// How often each family was asked for.
    asked: HashMap<u16, usize>,
}

impl NameServer {
    /// Starts a name server on the loopback that knows no name.
    pub async fn start() -> io::Result<Self> {
        let (udp, tcp) = bind().await?;
        let (address, zone) = (udp.local_addr()?, Arc::<Mutex<Zone>>::default());
        let work = serve(Arc::new(udp), tcp, zone.clone());
        #[expect(clippy::disallowed_methods, reason = "the task ends with the server, in drop")]
        let task = tokio::spawn(work);
        Ok(Self { address, zone, task })
    }

    /// Where it is to be asked.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the name has these addresses; none for a name that does not exist.
    ///
    /// # Panics
    /// If one of them is no address.
    pub fn set(&self, name: &str, addresses: &[&str]) {
        self.say(name, [Said::addresses(addresses)]);
    }

    /// From now on each look at the name is told the next of these, and all further ones the last. IPv4 and IPv6 are counted apart:
    /// one look asks for both.
    pub fn say(&self, name: &str, script: impl IntoIterator<Item = Said>) {
        let name = name.trim_end_matches('.').to_lowercase();
        lock(&self.zone).names.insert(name, Name { script: script.into_iter().collect(), asked: HashMap::new() });
    }

    /// The names that were asked for, in lower case.
    pub fn asked(&self) -> Vec<String> {
        lock(&self.zone).asked.clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One port for both protocols.
async fn bind() -> io::Result<(UdpSocket, TcpListener)> {
    let mut tried = 0;
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await?;
        tried += 1;
        match TcpListener::bind(udp.local_addr()?).await {
            Ok(tcp) => return Ok((udp, tcp)),
            Err(error) if tried == PORTS_TRIED_MAX => return Err(error),
            Err(_) => {}
        }
    }
}

async fn serve(udp: Arc<UdpSocket>, tcp: TcpListener, zone: Arc<Mutex<Zone>>) {
    let (mut answering, mut packet) = (JoinSet::new(), [0; 1_500]);
    loop {
        while answering.try_join_next().is_some() {}
        let zone = zone.clone();
        tokio::select! {
            received = udp.recv_from(&mut packet) => {
                let Ok((length, from)) = received else { continue };
                let (udp, query) = (udp.clone(), packet.get(..length).unwrap_or_default().to_vec());
                answering.spawn(async move {
                    let answer = answer(&query, &zone).await?;
                    let answer = if answer.len() > UDP_BYTES_MAX { cut(&query)? } else { answer };
                    udp.send_to(&answer, from).await.ok().map(drop)
                });
            }
            accepted = tcp.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                answering.spawn(async move { converse(stream, &zone).await.ok() });
            }
        }
    }
}

async fn converse(mut stream: TcpStream, zone: &Mutex<Zone>) -> io::Result<()> {
    loop {
        let mut query = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut query).await?;
        if let Some(answer) = answer(&query, zone).await {
            stream.write_u16(u16::try_from(answer.len()).unwrap_or(u16::MAX)).await?;
            stream.write_all(&answer).await?;
        }
    }
}

/// What the zone says to a query; `None` for silence, and for what is no query.
async fn answer(query: &[u8], zone: &Mutex<Zone>) -> Option<Vec<u8>> {
    let question = Question::read(query)?;
    let mut said = lock(zone).next(&question.name, question.family);
    while let Said::After(wait, then) = said {
        sleep(wait).await;
        said = *then;
    }
    let (mut chain, mut code) = (Vec::new(), 0);
    let mut addresses = Vec::new();
    loop {
        match said {
            Said::Silent => return None,
            Said::Garbage => return Some(query.iter().map(|byte| !byte).collect()),
            Said::ServFail => code = SERVFAIL,
            Said::NoSuchName => code = NXDOMAIN,
            Said::Addresses(found) if found.is_empty() => code = NXDOMAIN,
            Said::Addresses(found) => addresses = found,
            Said::Cname(target) if chain.len() < CNAMES_MAX => {
                said = lock(zone).next(&target.to_lowercase(), question.family);
                chain.push(target);
                continue;
            }
            Said::NoAddress | Said::Cname(_) | Said::After(..) => {}
        }
        return Some(question.answer(code, &chain, &addresses));
    }
}

impl Zone {
    fn next(&mut self, name: &str, family: u16) -> Said {
        self.asked.push(name.to_owned());
        let Some(known) = self.names.get_mut(name) else { return Said::NoSuchName };
        let asked = known.asked.entry(family).or_default();
        let said = known.script.get(*asked).or(known.script.last()).cloned();
        *asked += 1;
        said.unwrap_or(Said::NoSuchName)
    }
}

/// The question of a query: RFC 1035, section 4.
struct Question<'a> {
    id: &'a [u8],
    raw: &'a [u8],
    name: String,
    family: u16,
}

impl<'a> Question<'a> {
    fn read(query: &'a [u8]) -> Option<Self> {
        let (mut labels, mut at) = (Vec::new(), 12);
        loop {
            let length = usize::from(*query.get(at)?);
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(query.get(at + 1..=at + length)?).to_lowercase());
            at += 1 + length;
        }
        let family = u16::from_be_bytes(query.get(at + 1..at + 3)?.try_into().ok()?);
        Some(Self { id: query.get(..2)?, raw: query.get(12..at + 5)?, name: labels.join("."), family })
    }

    /// The header, the question as it was asked, the chain of other names, and one record for each address of the asked family.
    fn answer(&self, code: u8, chain: &[String], addresses: &[IpAddr]) -> Vec<u8> {
        let mut records = Vec::new();
        let mut owner = self.name.as_str();
        for target in chain {
            records.push(record(owner, CNAME, &encoded(target)));
            owner = target;
        }
        records.extend(addresses.iter().filter_map(|address| match address {
            IpAddr::V4(v4) if self.family == A => Some(record(owner, A, &v4.octets())),
            IpAddr::V6(v6) if self.family == AAAA => Some(record(owner, AAAA, &v6.octets())),
            _ => None,
        }));
        self.packet(0, code, &records)
    }

    fn packet(&self, flags: u8, code: u8, records: &[Vec<u8>]) -> Vec<u8> {
        let mut packet = self.id.to_vec();
        packet.extend([0x81 | flags, 0x80 | code, 0, 1]);
        packet.extend(u16::try_from(records.len()).unwrap_or(u16::MAX).to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(self.raw);
        packet.extend(records.iter().flatten());
        packet
    }
}

fn cut(query: &[u8]) -> Option<Vec<u8>> {
    Some(Question::read(query)?.packet(TRUNCATED, 0, &[]))
}

/// A record of class IN with a time to live of 0.
fn record(owner: &str, family: u16, data: &[u8]) -> Vec<u8> {
    let mut record = encoded(owner);
    record.extend(family.to_be_bytes());
    record.extend([0, 1, 0, 0, 0, 0]);
    record.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
    record.extend(data);
    record
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).unwrap_or_default());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}
