use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not a place on the public internet (the IANA special-purpose registry), and one address of a
/// cloud's own platform services.
const SPECIAL_V4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// What of `2000::/3` is not public: Teredo and other protocol assignments, documentation, 6to4 (an IPv4 address is in it).
const SPECIAL_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

const UNICAST_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// The well-known prefix of NAT64: the last 32 bits are the IPv4 address that is really dialled.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Whether an address is a place on the public internet.
///
/// IPv6 is judged by what is let through, so that mapped (`::ffff:0:0/96`), compatible (`::/96`), local and link-local
/// forms are refused without being named.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) if within_v6(v6, NAT64) => is_public_v4(last_32_bits(v6)),
        IpAddr::V6(v6) => within_v6(v6, UNICAST_V6) && !SPECIAL_V6.into_iter().any(|network| within_v6(v6, network)),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    !SPECIAL_V4.into_iter().any(|(network, prefix)| (v4.to_bits() ^ network.to_bits()) >> (32 - prefix) == 0)
}

fn within_v6(v6: Ipv6Addr, (network, prefix): (Ipv6Addr, u32)) -> bool {
    (v6.to_bits() ^ network.to_bits()) >> (128 - prefix) == 0
}

fn last_32_bits(v6: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = v6.octets();
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(text: &str) -> bool {
        is_public(text.parse().unwrap())
    }

    /// The first and the last address of each network, and the neighbours outside of it where they are public.
    const V4: [(&str, &str, Option<&str>, Option<&str>); 16] = [
        ("0.0.0.0", "0.255.255.255", None, Some("1.0.0.0")),
        ("10.0.0.0", "10.255.255.255", Some("9.255.255.255"), Some("11.0.0.0")),
        ("100.64.0.0", "100.127.255.255", Some("100.63.255.255"), Some("100.128.0.0")),
        ("127.0.0.0", "127.255.255.255", Some("126.255.255.255"), Some("128.0.0.0")),
        ("168.63.129.16", "168.63.129.16", Some("168.63.129.15"), Some("168.63.129.17")),
        ("169.254.0.0", "169.254.255.255", Some("169.253.255.255"), Some("169.255.0.0")),
        ("172.16.0.0", "172.31.255.255", Some("172.15.255.255"), Some("172.32.0.0")),
        ("192.0.0.0", "192.0.0.255", Some("191.255.255.255"), Some("192.0.1.0")),
        ("192.0.2.0", "192.0.2.255", Some("192.0.1.255"), Some("192.0.3.0")),
        ("192.88.99.0", "192.88.99.255", Some("192.88.98.255"), Some("192.88.100.0")),
        ("192.168.0.0", "192.168.255.255", Some("192.167.255.255"), Some("192.169.0.0")),
        ("198.18.0.0", "198.19.255.255", Some("198.17.255.255"), Some("198.20.0.0")),
        ("198.51.100.0", "198.51.100.255", Some("198.51.99.255"), Some("198.51.101.0")),
        ("203.0.113.0", "203.0.113.255", Some("203.0.112.255"), Some("203.0.114.0")),
        ("224.0.0.0", "239.255.255.255", Some("223.255.255.255"), None),
        ("240.0.0.0", "255.255.255.255", None, None),
    ];

    #[test]
    fn every_special_network_of_ipv4_is_refused_from_its_first_to_its_last_address() {
        for (first, last, before, after) in V4 {
            assert!(!public(first), "{first}");
            assert!(!public(last), "{last}");
            assert!(before.is_none_or(public), "{before:?}");
            assert!(after.is_none_or(public), "{after:?}");
            // The same through NAT64; and mapped, compatible and 6to4 forms whatever is inside.
            for inside in [Some(first), Some(last), before, after].into_iter().flatten() {
                let v4: Ipv4Addr = inside.parse().unwrap();
                assert_eq!(public(&format!("64:ff9b::{v4}")), is_public(v4.into()), "NAT64 of {v4}");
                assert!(!public(&format!("::ffff:{v4}")), "mapped {v4}");
                assert!(!public(&format!("::{v4}")), "compatible {v4}");
                assert!(!public(&format!("64:ff9b:1::{v4}")), "local NAT64 of {v4}");
                let [a, b, c, d] = v4.octets();
                assert!(!public(&format!("2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1")), "6to4 of {v4}");
            }
        }
    }

    #[test]
    fn of_ipv6_only_public_unicast_passes() {
        let refused = [
            "::",
            "::1",
            "::7f00:1",
            "100::1",
            "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001:db8::1",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            "2002::",
            "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "3fff::1",
            "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
            "4000::",
            "5f00::1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9a:ffff:ffff:ffff:ffff:808:808",
            "64:ff9b:0:0:0:1:808:808",
            "fc00::1",
            "fd00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ];
        for address in refused {
            assert!(!public(address), "{address}");
        }
        let public_ones = [
            "2000::",
            "2001:200::1",
            "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001:db9::",
            "2001:4860:4860::8888",
            "2003::",
            "2606:4700:4700::1111",
            "2a00:1450:4001:81b::200e",
            "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "3fff:1000::",
            "64:ff9b::8.8.8.8",
        ];
        for address in public_ones {
            assert!(public(address), "{address}");
        }
    }

    #[test]
    fn well_known_public_addresses_pass() {
        for address in
            ["1.1.1.1", "8.8.8.8", "9.9.9.9", "93.184.215.14", "140.82.121.4", "151.101.1.69", "185.199.108.153"]
        {
            assert!(public(address), "{address}");
        }
    }
}
