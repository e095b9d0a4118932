//! Kernel memory that a sandbox uses without it being the memory of a process: what waits in sockets and pipes, and page tables.
//!
//! A control group counts it. Where there is none, and for network sockets also where it is one of version 1, it is read from
//! `/proc` of the processes. Nothing says what waits in a Unix socket or a pipe, nor which descriptors are pipes, so each counts
//! as full.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};

/// What a full pipe and its kernel objects take, in bytes, once the user's pipes have used up `pipe-user-pages-soft`:
/// <https://man7.org/linux/man-pages/man7/pipe.7.html>. Up to there a pipe can hold more, 64 MiB altogether by default.
const PIPE: u64 = 10 << 10;
/// The descriptors of a process that do not count: most programs have fewer.
const USUAL_DESCRIPTORS: u64 = 64;
/// What a TCP or UDP socket takes in bytes, in addition to its queues.
const NETWORK_SOCKET: u64 = 4 << 10;
/// How much address space a page of page tables describes, for each byte of that page.
const MAPPED_BY_TABLES: u64 = 512;
/// The tables with the queues of a network namespace's sockets.
const QUEUES: [&str; 4] = ["tcp", "tcp6", "udp", "udp6"];

/// Returns whether a process is in a network namespace other than ours: only its sockets are the sandbox's.
pub(crate) fn has_own_network(pid: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
    matches!((namespace(&pid.to_string()), namespace("self")), (Ok(its), Ok(ours)) if its != ours)
}

/// Returns at least the memory of all sockets in the network namespace of a process, quickly.
pub(crate) fn most_of_sockets(pid: u32) -> Option<u64> {
    let Statistics { used, buffers, .. } = statistics(pid)?;
    // The buffers are those of all namespaces.
    Some(if used == 0 { 0 } else { used * unix_socket() + buffers })
}

/// Returns the memory of the sockets in the network namespace of a process; without that of Unix sockets when `network_only`.
pub(crate) fn sockets(pid: u32, network_only: bool) -> Option<u64> {
    let Statistics { used, network, .. } = statistics(pid)?;
    let version_6 = fs::read_to_string(format!("/proc/{pid}/net/sockstat6")).unwrap_or_default();
    let network = (network + parse_version_6(&version_6)).min(used);
    let queues: u64 = QUEUES.iter().map(|table| queues(&format!("/proc/{pid}/net/{table}"))).sum();
    let in_unix = if network_only { 0 } else { (used - network) * unix_socket() };
    Some(in_unix + network * NETWORK_SOCKET + queues)
}

/// Returns the number of descriptors that a process has open, or at least as many.
pub(crate) fn descriptors(pid: u32) -> u64 {
    match fs::metadata(format!("/proc/{pid}/fd")).map(|folder| folder.len()) {
        // Before Linux 6.2 the size says nothing.
        Ok(0) | Err(_) => status(pid).map_or(0, |text| parse_descriptors(&text)),
        Ok(count) => count,
    }
}

/// Returns what that many descriptors of one process may hold in pipes, in bytes.
pub(crate) fn memory_of_pipes(descriptors: u64) -> u64 {
    descriptors.saturating_sub(USUAL_DESCRIPTORS) * PIPE
}

/// Returns at least the page tables of a process with so much address space, in bytes.
pub(crate) fn most_of_page_tables(address_space: u64) -> u64 {
    address_space / MAPPED_BY_TABLES
}

/// Returns the page tables of a process in bytes.
pub(crate) fn page_tables(pid: u32) -> u64 {
    status(pid).map_or(0, |text| parse_page_tables(&text))
}

fn status(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// What can wait in one Unix socket, in bytes. A sender may go beyond its buffer by one message, and in a sandbox no program can
/// change the size of its buffers.
fn unix_socket() -> u64 {
    const USUAL: u64 = 212_992;
    let buffer = fs::read_to_string("/proc/sys/net/core/wmem_default").ok();
    2 * buffer.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Statistics {
    /// The sockets of all kinds.
    used: u64,
    /// Those of TCP and UDP over IPv4.
    network: u64,
    /// The bytes in the queues of TCP and UDP sockets, in all network namespaces together.
    buffers: u64,
}

fn statistics(pid: u32) -> Option<Statistics> {
    parse_statistics(&fs::read_to_string(format!("/proc/{pid}/net/sockstat")).ok()?)
}

/// Reads `/proc/PID/net/sockstat`: `sockets: used 5`, `TCP: inuse 2 orphan 0 tw 0 alloc 3 mem 1`, `UDP: inuse 0 mem 0`.
fn parse_statistics(text: &str) -> Option<Statistics> {
    let used = value_of(text, "sockets:", "used")?;
    let [tcp, udp] = ["TCP:", "UDP:"];
    let both = |key| value_of(text, tcp, key).unwrap_or(0) + value_of(text, udp, key).unwrap_or(0);
    let buffers = both("mem").saturating_mul(rustix::param::page_size() as u64);
    Some(Statistics { used, network: both("inuse"), buffers })
}

/// Reads `/proc/PID/net/sockstat6`: `TCP6: inuse 2`, `UDP6: inuse 0`.
fn parse_version_6(text: &str) -> u64 {
    ["TCP6:", "UDP6:"].into_iter().filter_map(|line| value_of(text, line, "inuse")).sum()
}

fn value_of(text: &str, line: &str, key: &str) -> Option<u64> {
    let mut words = text.lines().find_map(|it| it.strip_prefix(line))?.split_whitespace();
    words.find(|word| *word == key)?;
    words.next()?.parse().ok()
}

/// Returns the bytes in the queues of a table such as `/proc/PID/net/tcp`, which may have very many lines.
fn queues(path: &str) -> u64 {
    let Ok(file) = File::open(path) else { return 0 };
    BufReader::new(file).split(b'\n').map_while(Result::ok).filter_map(|line| parse_queues(&line)).sum()
}

/// Reads the field `tx_queue:rx_queue`, which is hexadecimal: <https://docs.kernel.org/networking/proc_net_tcp.html>.
fn parse_queues(line: &[u8]) -> Option<u64> {
    let field = std::str::from_utf8(line).ok()?.split_whitespace().nth(4)?;
    let (sent, received) = field.split_once(':')?;
    let bytes = |text| u64::from_str_radix(text, 16).ok();
    Some(bytes(sent)? + bytes(received)?)
}

/// Reads `FDSize` of `/proc/PID/status`, the number of slots for descriptors.
fn parse_descriptors(status: &str) -> u64 {
    let text = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Reads `VmPTE` of `/proc/PID/status`.
fn parse_page_tables(status: &str) -> u64 {
    let text = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    let kilobytes: Option<u64> = text.and_then(|text| text.trim().strip_suffix("kB")?.trim().parse().ok());
    kilobytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_statistics_of_sockets_are_read() {
        let text =
            "sockets: used 12\nTCP: inuse 4 orphan 0 tw 0 alloc 9 mem 3\nUDP: inuse 2 mem 1\nRAW: inuse 0\n";
        let page = rustix::param::page_size() as u64;
        assert_eq!(parse_statistics(text), Some(Statistics { used: 12, network: 6, buffers: 4 * page }));
        assert_eq!(parse_version_6("TCP6: inuse 3\nUDP6: inuse 1\nRAW6: inuse 9\n"), 4);
        assert_eq!(parse_statistics(""), None);
    }

    #[test]
    fn the_queues_of_network_sockets_are_read() {
        let line = b"   0: 0100007F:9C41 0100007F:1F90 01 0000FF00:00000A10 01:00000014 00000000  0 0 7 2 0 20 4 30 10 -1";
        assert_eq!(parse_queues(line), Some(0xff00 + 0xa10));
        assert_eq!(parse_queues(b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"), None);
        assert_eq!(parse_queues(b""), None);
    }

    #[test]
    fn a_process_is_seen_with_its_sockets_and_descriptors() {
        let _pair = UnixStream::pair().unwrap();
        let own = std::process::id();
        assert!(descriptors(own) >= 2);
        assert!(sockets(own, false).unwrap() >= 2 * unix_socket());
        assert!(sockets(own, true).unwrap() < sockets(own, false).unwrap());
        assert!(most_of_sockets(own).unwrap() >= 2 * unix_socket());
        assert!(page_tables(own) > 0 && !has_own_network(own));
    }

    #[test]
    fn only_more_descriptors_than_usual_count() {
        assert_eq!(memory_of_pipes(USUAL_DESCRIPTORS), 0);
        assert_eq!(memory_of_pipes(1024), (1024 - USUAL_DESCRIPTORS) * PIPE);
        assert_eq!(parse_descriptors("Pid:\t7\nFDSize:\t256\nGroups:\t\n"), 256);
    }

    #[test]
    fn page_tables_are_read() {
        assert_eq!(parse_page_tables("VmLib:\t 9 kB\nVmPTE:\t  52 kB\nVmSwap:\t0 kB\n"), 52 << 10);
        assert_eq!(parse_page_tables("Name:\tkthreadd\n"), 0);
    }
}
