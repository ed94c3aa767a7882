//! Which network an IP address belongs to, also when IPv6 wraps an IPv4 address. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// Why an address is not an ordinary address of the internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// Hands out credentials of the machine without asking for any.
    CloudMetadata,
    Multicast,
    Broadcast,
    /// `0.0.0.0/8` and `::`, which systems dial as this machine.
    Unspecified,
    Loopback,
    Private,
    LinkLocal,
    UniqueLocal,
    /// Behind a provider's address translation, `100.64.0.0/10`.
    CarrierGrade,
    Documentation,
    Benchmarking,
    Reserved,
    /// IPv6 that carries an IPv4 address: mapped, compatible, translated, 6to4, Teredo, ISATAP.
    Wrapped,
}

impl Network {
    /// Whether `allow_private` permits it. Nothing that a sink could want to reach has one of the others.
    pub fn is_permittable(self) -> bool {
        !matches!(self, Self::CloudMetadata | Self::Multicast | Self::Broadcast | Self::Unspecified)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::CloudMetadata => "cloud metadata",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::UniqueLocal => "unique-local",
            Self::CarrierGrade => "carrier-grade NAT",
            Self::Documentation => "documentation",
            Self::Benchmarking => "benchmarking",
            Self::Reserved => "reserved",
            Self::Wrapped => "an IPv4 address wrapped in IPv6",
        })
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(high: [u16; 4], low: [u16; 4], prefix: u8) -> Ipv6Net {
    let ([a, b, c, d], [e, f, g, h]) = (high, low);
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// The first network that contains an address counts. From the IANA registry of special-purpose addresses, with the metadata
/// services of the clouds in front of it.
const IPV4: &[(Ipv4Net, Network)] = &[
    // AWS, Azure, Google, Oracle, DigitalOcean and others; credentials of ECS tasks and EKS pods are next to it.
    (v4(169, 254, 169, 0, 24), Network::CloudMetadata),
    (v4(169, 254, 170, 0, 24), Network::CloudMetadata),
    // Tencent Cloud.
    (v4(169, 254, 0, 23, 32), Network::CloudMetadata),
    // Scaleway.
    (v4(169, 254, 42, 42, 32), Network::CloudMetadata),
    // Alibaba Cloud.
    (v4(100, 100, 100, 200, 32), Network::CloudMetadata),
    // Oracle Cloud Classic.
    (v4(192, 0, 0, 192, 32), Network::CloudMetadata),
    // The host of an Azure machine: a public address that only the machine itself reaches.
    (v4(168, 63, 129, 16, 32), Network::CloudMetadata),
    (v4(0, 0, 0, 0, 8), Network::Unspecified),
    (v4(127, 0, 0, 0, 8), Network::Loopback),
    (v4(10, 0, 0, 0, 8), Network::Private),
    (v4(172, 16, 0, 0, 12), Network::Private),
    (v4(192, 168, 0, 0, 16), Network::Private),
    (v4(169, 254, 0, 0, 16), Network::LinkLocal),
    (v4(100, 64, 0, 0, 10), Network::CarrierGrade),
    (v4(192, 0, 2, 0, 24), Network::Documentation),
    (v4(198, 51, 100, 0, 24), Network::Documentation),
    (v4(203, 0, 113, 0, 24), Network::Documentation),
    (v4(198, 18, 0, 0, 15), Network::Benchmarking),
    (v4(192, 0, 0, 0, 24), Network::Reserved),
    // Relays of 6to4, which are no longer there.
    (v4(192, 88, 99, 0, 24), Network::Reserved),
    (v4(224, 0, 0, 0, 4), Network::Multicast),
    (v4(255, 255, 255, 255, 32), Network::Broadcast),
    (v4(240, 0, 0, 0, 4), Network::Reserved),
];

const IPV6: &[(Ipv6Net, Network)] = &[
    // AWS: the machine's metadata, and the credentials of EKS pods.
    (v6([0xfd00, 0x0ec2, 0, 0], [0, 0, 0, 0], 32), Network::CloudMetadata),
    // Google Cloud.
    (v6([0xfd20, 0x00ce, 0, 0], [0, 0, 0, 0x254], 128), Network::CloudMetadata),
    // Scaleway.
    (v6([0xfd00, 0x0042, 0, 0], [0, 0, 0, 0x42], 128), Network::CloudMetadata),
    (v6([0; 4], [0; 4], 128), Network::Unspecified),
    (v6([0; 4], [0, 0, 0, 1], 128), Network::Loopback),
    (v6([0xff00, 0, 0, 0], [0; 4], 8), Network::Multicast),
    (v6([0xfe80, 0, 0, 0], [0; 4], 10), Network::LinkLocal),
    (v6([0xfec0, 0, 0, 0], [0; 4], 10), Network::Private),
    (v6([0xfc00, 0, 0, 0], [0; 4], 7), Network::UniqueLocal),
    (v6([0x2001, 0x0db8, 0, 0], [0; 4], 32), Network::Documentation),
    (v6([0x3fff, 0, 0, 0], [0; 4], 20), Network::Documentation),
    (v6([0x2001, 0x0002, 0, 0], [0; 4], 48), Network::Benchmarking),
    // For protocols, not for hosts.
    (v6([0x2001, 0, 0, 0], [0; 4], 23), Network::Reserved),
];

/// The only part of IPv6 that is given to hosts of the internet.
const GLOBAL: Ipv6Net = v6([0x2000, 0, 0, 0], [0; 4], 3);

/// The well-known prefix of NAT64. In networks that have only IPv6, every IPv4 host of the internet has such an address.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0], [0; 4], 96);

/// Where IPv6 carries an IPv4 address: the network, and the positions of the first bit.
const WRAPPERS: &[(Ipv6Net, &[u8])] = &[
    (v6([0; 4], [0, 0xffff, 0, 0], 96), &[96]),
    (v6([0; 4], [0, 0, 0, 0], 96), &[96]),
    (v6([0; 4], [0xffff, 0, 0, 0], 96), &[96]),
    (NAT64, &[96]),
    // NAT64 of one's own, with a prefix of any length (RFC 6052, 2.2). Bits 64 to 71 are not part of the address.
    (v6([0x64, 0xff9b, 1, 0], [0; 4], 48), &[48, 56, 64, 96]),
    // 6to4.
    (v6([0x2002, 0, 0, 0], [0; 4], 16), &[16]),
    // Teredo: the server. The client is inverted, and added below.
    (v6([0x2001, 0, 0, 0], [0; 4], 32), &[32]),
];

/// The network of an address; `None` for an ordinary one of the internet.
pub(super) fn network(address: IpAddr) -> Option<Network> {
    match address {
        IpAddr::V4(address) => network_v4(address),
        IpAddr::V6(address) => network_v6(address),
    }
}

/// Whether IPv6 carries an IPv4 address: a way to write an address that a list of IPv4 addresses does not find.
pub(super) fn is_wrapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if !wrapped(address).is_empty())
}

fn network_v4(address: Ipv4Addr) -> Option<Network> {
    IPV4.iter().find(|(net, _)| net.contains(&address)).map(|(_, network)| *network)
}

fn network_v6(address: Ipv6Addr) -> Option<Network> {
    let inner: Vec<_> = wrapped(address).into_iter().map(network_v4).collect();
    match inner[..] {
        [] => {}
        [network] if NAT64.contains(&address) => return network,
        [network] => return Some(network.unwrap_or(Network::Wrapped)),
        // Which of several readings holds is not known here, so the worst counts.
        _ if inner.contains(&Some(Network::CloudMetadata)) => return Some(Network::CloudMetadata),
        _ => return Some(Network::Wrapped),
    }
    let listed = IPV6.iter().find(|(net, _)| net.contains(&address)).map(|(_, network)| *network);
    listed.or((!GLOBAL.contains(&address)).then_some(Network::Reserved))
}

/// Every IPv4 address that an IPv6 address can be read as.
fn wrapped(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    if address.is_loopback() || address.is_unspecified() {
        return Vec::new();
    }
    let bits = address.to_bits();
    let mut found = Vec::new();
    for (_, starts) in WRAPPERS.iter().filter(|(net, _)| net.contains(&address)) {
        found.extend(starts.iter().map(|start| at_bit(bits, *start)));
    }
    let segments = address.segments();
    if segments[..2] == [0x2001, 0] {
        found.push(Ipv4Addr::from_bits(!low_bits(bits)));
    }
    // ISATAP, below any prefix.
    if segments[5] == 0x5efe && matches!(segments[4], 0 | 0x200) {
        found.push(Ipv4Addr::from_bits(low_bits(bits)));
    }
    found
}

/// The IPv4 address that starts at this bit, without bits 64 to 71 (RFC 6052, 2.2).
fn at_bit(bits: u128, start: u8) -> Ipv4Addr {
    let is_split = (33..=64).contains(&start);
    let shown = if is_split {
        let before = bits >> 64;
        let after = bits & (u128::MAX >> 72);
        (before << 56) | after
    } else {
        bits
    };
    let width = if is_split { 120 } else { 128 };
    Ipv4Addr::from_bits(low_bits(shown >> (width - u32::from(start) - 32)))
}

#[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are what is wanted")]
fn low_bits(bits: u128) -> u32 {
    bits as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nat64_is_read_at_every_length_of_its_prefix() {
        for text in [
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:00a9:fe:a9fe::",
            "64:ff9b:1:0:a9:fea9:fe00::",
            "64:ff9b:1::a9fe:a9fe",
        ] {
            assert_eq!(network(text.parse().unwrap()), Some(Network::CloudMetadata), "{text}");
        }
        assert_eq!(network("64:ff9b::808:808".parse().unwrap()), None);
    }

    #[test]
    fn each_network_ends_where_it_ends() {
        for (inside, outside, network_inside) in [
            ("10.255.255.255", "11.0.0.0", Network::Private),
            ("172.31.255.255", "172.32.0.0", Network::Private),
            ("192.168.0.0", "192.167.255.255", Network::Private),
            ("100.127.255.255", "100.128.0.0", Network::CarrierGrade),
            ("100.64.0.0", "100.63.255.255", Network::CarrierGrade),
            ("127.255.255.255", "128.0.0.0", Network::Loopback),
            ("198.19.255.255", "198.20.0.0", Network::Benchmarking),
            ("224.0.0.0", "223.255.255.255", Network::Multicast),
            ("2001:db8:ffff::", "2001:db9::", Network::Documentation),
            ("2001:1ff::1", "2001:200::1", Network::Reserved),
            ("4000::1", "3ffe::1", Network::Reserved),
        ] {
            assert_eq!(network(inside.parse().unwrap()), Some(network_inside), "{inside}");
            assert_eq!(network(outside.parse().unwrap()), None, "{outside}");
        }
    }
}
