//! A name server for tests: answers over UDP from a table, with a time to live of 0.
#![expect(clippy::indexing_slicing, reason = "a packet of another shape may end the test")]

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

const A: u16 = 1;
const AAAA: u16 = 28;
const NXDOMAIN: u8 = 3;

#[derive(Default)]
struct Zone {
    answers: HashMap<String, Vec<IpAddr>>,
    asked: Vec<String>,
}

pub(crate) struct NameServer {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    task: JoinHandle<()>,
}

impl NameServer {
    pub(crate) async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, zone) = (socket.local_addr().unwrap(), Arc::<Mutex<Zone>>::default());
        let served = zone.clone();
        let work = async move {
            let mut packet = [0; 1_500];
            while let Ok((length, from)) = socket.recv_from(&mut packet).await {
                let answer = answer(&packet[..length], &served);
                socket.send_to(&answer, from).await.unwrap();
            }
        };
        #[expect(clippy::disallowed_methods, reason = "the task ends with the server, in drop")]
        let task = tokio::spawn(work);
        Self { address, zone, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the name has these addresses; none for a name that does not exist.
    pub(crate) fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.zone.lock().unwrap().answers.insert(name.to_owned(), addresses);
    }

    /// The names that were asked for, in lower case.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.zone.lock().unwrap().asked.clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// RFC 1035, section 4: the header, the question as it was asked, and one record for each address of the asked family.
fn answer(query: &[u8], zone: &Mutex<Zone>) -> Vec<u8> {
    let (name, end) = name(query);
    let kind = u16::from_be_bytes([query[end], query[end + 1]]);
    let mut zone = zone.lock().unwrap();
    zone.asked.push(name.clone());
    let known = zone.answers.get(&name).filter(|addresses| !addresses.is_empty());
    let records: Vec<Vec<u8>> = known
        .into_iter()
        .flatten()
        .filter_map(|address| match address {
            IpAddr::V4(v4) if kind == A => Some(v4.octets().to_vec()),
            IpAddr::V6(v6) if kind == AAAA => Some(v6.octets().to_vec()),
            _ => None,
        })
        .collect();
    let mut packet = query[..2].to_vec();
    packet.extend([0x81, 0x80 | if known.is_some() { 0 } else { NXDOMAIN }]);
    packet.extend([0, 1]);
    packet.extend(u16::try_from(records.len()).unwrap().to_be_bytes());
    packet.extend([0; 4]);
    packet.extend(&query[12..end + 4]);
    for data in records {
        packet.extend([0xc0, 12]); // the name of the question
        packet.extend(kind.to_be_bytes());
        packet.extend([0, 1, 0, 0, 0, 0]); // class IN, time to live 0
        packet.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        packet.extend(data);
    }
    packet
}

/// The name of the question, and where what follows it begins.
fn name(query: &[u8]) -> (String, usize) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..=at + length]).to_lowercase());
        at += 1 + length;
    }
    (labels.join("."), at + 1)
}
