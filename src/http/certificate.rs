//! When the certificate of a listener expires.

use std::path::Path;

use jiff::Timestamp;
use jiff::civil::DateTime;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Tags of ASN.1.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns when the first certificate of a file expires; None if it has none that can be read.
pub fn expiry_of(file: &Path) -> Option<Timestamp> {
    let certificate = CertificateDer::pem_file_iter(file).ok()?.next()?.ok()?;
    parse_expiry(&certificate)
}

/// Reads the end of the validity of a certificate: RFC 5280, section 4.1.
fn parse_expiry(certificate: &[u8]) -> Option<Timestamp> {
    let (tag, certificate, _) = element(certificate)?;
    let (signed_tag, mut rest, _) = element(certificate)?;
    if [tag, signed_tag] != [SEQUENCE; 2] {
        return None;
    }
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    // Serial number, signature, issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (tag, time, _) = element(element(validity)?.2)?;
    parse_time(tag, time)
}

/// Returns tag and content of the first element, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, bytes) = bytes.split_first()?;
    let (&first, bytes) = bytes.split_first()?;
    let (length, bytes) = match first {
        0..=0x7f => (usize::from(first), bytes),
        0x81..=0x84 => {
            let (length, bytes) = bytes.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), bytes)
        }
        _ => return None,
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Reads `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn parse_time(tag: u8, text: &[u8]) -> Option<Timestamp> {
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let text = match tag {
        // Until 2049.
        UTC_TIME if text.len() == 12 => format!("{}{text}", if text < "50" { "20" } else { "19" }),
        GENERALIZED_TIME if text.len() == 14 => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%S", &text).ok()?;
    time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        match length < 0x80 {
            true => [&[tag, length as u8], content].concat(),
            false => [&[tag, 0x82, (length >> 8) as u8, length as u8], content].concat(),
        }
    }

    fn certificate(has_version: bool, tag: u8, time: &str) -> Vec<u8> {
        let version = if has_version { wrap(VERSION, &wrap(2, &[2])) } else { Vec::new() };
        let validity = [wrap(UTC_TIME, b"250101000000Z"), wrap(tag, time.as_bytes())].concat();
        let issuer = wrap(SEQUENCE, &[0; 300]);
        let parts = [
            version,
            wrap(2, &[1; 16]),
            wrap(SEQUENCE, b""),
            issuer,
            wrap(SEQUENCE, &validity),
            wrap(SEQUENCE, b"subject and more"),
        ];
        wrap(SEQUENCE, &[wrap(SEQUENCE, &parts.concat()), wrap(SEQUENCE, b"")].concat())
    }

    #[test]
    fn the_end_of_the_validity_is_read() {
        let read = |has_version, tag, time| {
            parse_expiry(&certificate(has_version, tag, time)).map(|time| time.to_string())
        };
        assert_eq!(read(true, UTC_TIME, "261123120000Z").as_deref(), Some("2026-11-23T12:00:00Z"));
        assert_eq!(read(false, UTC_TIME, "991231235959Z").as_deref(), Some("1999-12-31T23:59:59Z"));
        assert_eq!(read(true, GENERALIZED_TIME, "20510102030405Z").as_deref(), Some("2051-01-02T03:04:05Z"));
        for (tag, wrong) in
            [(UTC_TIME, "261323120000Z"), (UTC_TIME, "x"), (2, "261123120000Z"), (GENERALIZED_TIME, "")]
        {
            assert_eq!(read(true, tag, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let whole = certificate(true, UTC_TIME, "261123120000Z");
        for length in 0..whole.len() {
            assert_eq!(parse_expiry(&whole[..length]), None, "{length}");
        }
        for wrong in [&b"\x30\x84\xff\xff\xff\xff"[..], b"\x30\x80", b"\x30\x85\0\0\0\0\0"] {
            assert_eq!(parse_expiry(wrong), None);
        }
    }
}
