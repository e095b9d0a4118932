//! Pictures in terminals that can show them: the escape sequences of kitty, iTerm2 and sixel.

use std::fs::File;
use std::io::{self, Cursor, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::session::Picture;

/// Bytes of base64 in one sequence of kitty.
const KITTY_CHUNK: usize = 4096;
/// How long a terminal may take to answer, also over a slow line. Each answers the second question.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pixels of a picture that is decoded here.
const MOST_PIXELS: usize = 16 << 20;
/// Pixels of a side of a sixel picture: a larger one is made smaller.
const SIXEL_SIDE: usize = 1000;

/// How a terminal shows pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Graphics {
    /// <https://sw.kovidgoyal.net/kitty/graphics-protocol/>
    Kitty,
    /// <https://iterm2.com/documentation-images.html>
    Iterm,
    /// <https://vt100.net/docs/vt3xx-gp/chapter14.html>
    Sixel,
}

/// Shows pictures on standard output, if that is a terminal that can. It is asked when the first one comes.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    graphics: Option<Option<Graphics>>,
}

impl Pictures {
    /// Returns the escape sequence that shows a picture; None if the terminal cannot show it.
    pub(super) fn sequence(&mut self, picture: &Picture) -> Option<Vec<u8>> {
        let graphics = (*self.graphics.get_or_insert_with(graphics_of_terminal))?;
        sequence(graphics, picture)
    }
}

fn graphics_of_terminal() -> Option<Graphics> {
    if !io::stdout().is_terminal() {
        return None;
    }
    match by_environment(|name| std::env::var(name).ok()) {
        Known::Graphics(graphics) => Some(graphics),
        Known::None => None,
        Known::Unknown => ask_terminal().ok().flatten(),
    }
}

/// What the environment says of a terminal.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    Graphics(Graphics),
    None,
    Unknown,
}

fn by_environment(variable: impl Fn(&str) -> Option<String>) -> Known {
    let of = |name| variable(name).unwrap_or_default();
    let (term, program) = (of("TERM"), of("TERM_PROGRAM"));
    // A multiplexer keeps what it shows as text.
    if matches!(&*term, "" | "dumb") || term.starts_with("screen") || term.starts_with("tmux") {
        return Known::None;
    }
    if term == "xterm-kitty" || term == "xterm-ghostty" {
        return Known::Graphics(Graphics::Kitty);
    }
    match &*program {
        "iTerm.app" | "WezTerm" => Known::Graphics(Graphics::Iterm),
        _ if of("LC_TERMINAL") == "iTerm2" => Known::Graphics(Graphics::Iterm),
        _ => Known::Unknown,
    }
}

/// Asks for the graphics of kitty, and for the attributes of the terminal, which each terminal answers.
fn ask_terminal() -> io::Result<Option<Graphics>> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let before = tcgetattr(&terminal)?;
    let mut quiet = before.clone();
    quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
    quiet.special_codes[SpecialCodeIndex::VMIN] = 0;
    quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(&terminal, OptionalActions::Now, &quiet)?;
    let answer = terminal
        .write_all(b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c")
        .and_then(|()| read_answer(&mut terminal));
    tcsetattr(&terminal, OptionalActions::Now, &before)?;
    Ok(parse_answer(&answer?))
}

/// Reads until the attributes of the terminal are there.
fn read_answer(terminal: &mut File) -> io::Result<Vec<u8>> {
    let (deadline, mut answer) = (Instant::now() + PATIENCE, Vec::new());
    let is_whole = |answer: &[u8]| {
        answer.windows(3).position(|start| start == b"\x1b[?").is_some_and(|at| answer[at..].contains(&b'c'))
    };
    while !is_whole(&answer) {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
        if left.is_zero() || poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&timeout))? == 0 {
            break;
        }
        let mut piece = [0; 256];
        let read = terminal.read(&mut piece)?;
        answer.extend_from_slice(&piece[..read]);
    }
    Ok(answer)
}

/// Reads what a terminal answers: `ESC _ G i=31;OK ESC \` for kitty, and `ESC [ ? 62 ; 4 ; 22 c`, where 4 is sixel.
fn parse_answer(answer: &[u8]) -> Option<Graphics> {
    let answer = String::from_utf8_lossy(answer);
    if answer.contains("\x1b_Gi=31;OK") {
        return Some(Graphics::Kitty);
    }
    let (_, attributes) = answer.split_once("\x1b[?")?;
    let (attributes, _) = attributes.split_once('c')?;
    attributes.split(';').skip(1).any(|attribute| attribute == "4").then_some(Graphics::Sixel)
}

/// Returns the sequence that shows a picture, with the end of its line.
fn sequence(graphics: Graphics, picture: &Picture) -> Option<Vec<u8>> {
    let data = picture.data.as_ref()?;
    let mut sequence = match graphics {
        Graphics::Kitty if picture.mime == "image/png" => kitty("f=100", data),
        Graphics::Kitty => {
            let pixels = decode(picture, data)?;
            kitty(&format!("f=24,s={},v={}", pixels.width, pixels.height), &pixels.rgb)
        }
        Graphics::Iterm => {
            let (size, encoded) = (data.len(), STANDARD.encode(data));
            format!("\x1b]1337;File=inline=1;size={size}:{encoded}\x07").into_bytes()
        }
        Graphics::Sixel => sixel(&decode(picture, data)?.at_most(SIXEL_SIDE)),
    };
    sequence.push(b'\n');
    Some(sequence)
}

fn kitty(format: &str, data: &[u8]) -> Vec<u8> {
    let encoded = STANDARD.encode(data);
    let mut chunks = encoded.as_bytes().chunks(KITTY_CHUNK).peekable();
    let mut sequence = Vec::with_capacity(encoded.len() + encoded.len() / 100 + 64);
    let mut keys = format!("a=T,q=2,{format},");
    while let Some(chunk) = chunks.next() {
        let more = u8::from(chunks.peek().is_some());
        sequence.extend_from_slice(format!("\x1b_G{keys}m={more};").as_bytes());
        sequence.extend_from_slice(chunk);
        sequence.extend_from_slice(b"\x1b\\");
        keys.clear();
    }
    sequence
}

/// A picture with three bytes a pixel, on white.
struct Pixels {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

fn decode(picture: &Picture, data: &[u8]) -> Option<Pixels> {
    let (width, height) = picture.size;
    if width == 0 || height == 0 || width.checked_mul(height)? > MOST_PIXELS {
        return None;
    }
    let rgb = match &*picture.mime {
        "image/png" => decode_png(data)?,
        _ => {
            let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
            JpegDecoder::new_with_options(Cursor::new(data), options).decode().ok()?
        }
    };
    (rgb.len() == width * height * 3).then_some(Pixels { width, height, rgb })
}

fn decode_png(data: &[u8]) -> Option<Vec<u8>> {
    let limits = png::Limits { bytes: MOST_PIXELS * 4 };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(data), limits);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().ok()?;
    let mut pixels = vec![0; reader.output_buffer_size()?];
    let info = reader.next_frame(&mut pixels).ok()?;
    pixels.truncate(info.buffer_size());
    let on_white = |value: u8, alpha: u8| {
        let alpha = u16::from(alpha);
        ((u16::from(value) * alpha + 255 * (255 - alpha)) / 255) as u8
    };
    Some(match info.color_type {
        png::ColorType::Rgb => pixels,
        png::ColorType::Rgba => {
            pixels.chunks_exact(4).flat_map(|p| [0, 1, 2].map(|at| on_white(p[at], p[3]))).collect()
        }
        png::ColorType::Grayscale => pixels.iter().flat_map(|value| [*value; 3]).collect(),
        png::ColorType::GrayscaleAlpha => {
            pixels.chunks_exact(2).flat_map(|p| [on_white(p[0], p[1]); 3]).collect()
        }
        png::ColorType::Indexed => return None,
    })
}

impl Pixels {
    /// Makes a picture smaller by a whole number, so that no side is longer than `side`: each pixel is the mean of a square.
    fn at_most(self, side: usize) -> Self {
        let by = self.width.max(self.height).div_ceil(side);
        if by == 1 {
            return self;
        }
        let (width, height) = ((self.width / by).max(1), (self.height / by).max(1));
        let mut rgb = Vec::with_capacity(width * height * 3);
        for (y, x, channel) in
            (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..3).map(move |c| (y, x, c))))
        {
            let rows = y * by..((y + 1) * by).min(self.height);
            let columns = x * by..((x + 1) * by).min(self.width);
            let count = rows.len() * columns.len();
            let sum: usize = rows
                .flat_map(|row| columns.clone().map(move |column| (row * self.width + column) * 3 + channel))
                .map(|at| usize::from(self.rgb[at]))
                .sum();
            rgb.push((sum / count) as u8);
        }
        Self { width, height, rgb }
    }

    /// Returns the number of the nearest color of a cube of six levels.
    fn color(&self, x: usize, y: usize) -> u8 {
        let at = (y * self.width + x) * 3;
        self.rgb[at..at + 3]
            .iter()
            .fold(0, |number, value| number * 6 + ((u16::from(*value) * 5 + 127) / 255) as u8)
    }
}

/// Writes a picture in bands of six rows, each band color by color.
fn sixel(pixels: &Pixels) -> Vec<u8> {
    let mut out = format!("\x1bPq\"1;1;{};{}", pixels.width, pixels.height);
    for color in 0..216_u32 {
        let level = |weight: u32| color / weight % 6 * 20;
        out.push_str(&format!("#{color};2;{};{};{}", level(36), level(6), level(1)));
    }
    for top in (0..pixels.height).step_by(6) {
        let rows = (pixels.height - top).min(6);
        // For each color the dots of each column, as bits from the top.
        let mut bands = std::collections::BTreeMap::<u8, Vec<u8>>::new();
        for (row, x) in (0..rows).flat_map(|row| (0..pixels.width).map(move |x| (row, x))) {
            let dots = bands.entry(pixels.color(x, top + row)).or_insert_with(|| vec![0; pixels.width]);
            dots[x] |= 1 << row;
        }
        for (color, dots) in bands {
            out.push_str(&format!("#{color}"));
            for run in dots.chunk_by(|one, other| one == other) {
                let letter = char::from(b'?' + run[0]);
                match run.len() {
                    length @ 1..=3 => (0..length).for_each(|_| out.push(letter)),
                    length => out.push_str(&format!("!{length}{letter}")),
                }
            }
            // Back to the start of the band.
            out.push('$');
        }
        out.push('-');
    }
    out.push_str("\x1b\\");
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PNG of these pixels.
    fn png(color: png::ColorType, width: u32, height: u32, data: &[u8]) -> Picture {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(color);
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        let size = (width as usize, height as usize);
        Picture { mime: "image/png".into(), bytes: file.len() as u64, size, data: Some(file) }
    }

    fn terminal<'a>(variables: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn a_terminal_is_known_by_its_environment() {
        for (variables, known) in [
            (&[("TERM", "xterm-kitty")][..], Known::Graphics(Graphics::Kitty)),
            (&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")], Known::Graphics(Graphics::Iterm)),
            (&[("TERM", "xterm-256color"), ("LC_TERMINAL", "iTerm2")], Known::Graphics(Graphics::Iterm)),
            (&[("TERM", "xterm-256color")], Known::Unknown),
            (&[("TERM", "tmux-256color"), ("TERM_PROGRAM", "iTerm.app")], Known::None),
            (&[("TERM", "dumb")], Known::None),
            (&[], Known::None),
        ] {
            assert_eq!(by_environment(terminal(variables)), known, "{variables:?}");
        }
    }

    #[test]
    fn the_answer_of_a_terminal_says_what_it_can() {
        assert_eq!(parse_answer(b"\x1b_Gi=31;OK\x1b\\\x1b[?62;c"), Some(Graphics::Kitty));
        assert_eq!(parse_answer(b"\x1b[?62;4;22c"), Some(Graphics::Sixel));
        for none in [&b"\x1b[?62;22c"[..], b"\x1b[?4c", b"\x1b[?62;44c", b"", b"typed ahead"] {
            assert_eq!(parse_answer(none), None);
        }
    }

    #[test]
    fn kitty_gets_a_picture_in_chunks() {
        let data = vec![7; 4000];
        let picture =
            Picture { mime: "image/png".into(), bytes: 4000, size: (1, 1), data: Some(data.clone()) };
        let sequence = String::from_utf8(sequence(Graphics::Kitty, &picture).unwrap()).unwrap();
        let chunks: Vec<_> = sequence.trim_end().split_terminator("\x1b\\").collect();
        let first = chunks[0].strip_prefix("\x1b_Ga=T,q=2,f=100,m=1;").unwrap();
        let last = chunks[1].strip_prefix("\x1b_Gm=0;").unwrap();
        assert_eq!((chunks.len(), first.len()), (2, 4096));
        assert_eq!(STANDARD.decode(first.to_owned() + last).unwrap(), data);
    }

    #[test]
    fn sixel_has_the_colors_of_each_band() {
        let red_over_blue = png(png::ColorType::Rgb, 2, 2, &[255, 0, 0, 255, 0, 0, 0, 0, 255, 0, 0, 255]);
        let sequence = String::from_utf8(sequence(Graphics::Sixel, &red_over_blue).unwrap()).unwrap();
        assert!(sequence.starts_with("\x1bPq\"1;1;2;2#0;2;0;0;0#1;2;0;0;20"), "{sequence}");
        assert!(sequence.ends_with("#215;2;100;100;100#5AA$#180@@$-\x1b\\\n"), "{sequence}");
    }

    #[test]
    fn every_kind_of_png_is_decoded_on_white() {
        for (color, data, expected) in [
            (png::ColorType::Grayscale, &[9, 255][..], [9, 9, 9, 255, 255, 255]),
            (png::ColorType::GrayscaleAlpha, &[9, 255, 9, 0], [9, 9, 9, 255, 255, 255]),
            (png::ColorType::Rgba, &[1, 2, 3, 255, 1, 2, 3, 0], [1, 2, 3, 255, 255, 255]),
        ] {
            let picture = png(color, 2, 1, data);
            assert_eq!(decode(&picture, picture.data.as_ref().unwrap()).unwrap().rgb, expected, "{color:?}");
        }
    }

    #[test]
    fn a_large_picture_is_made_smaller_and_a_false_one_is_not_shown() {
        let pixels = Pixels { width: 4, height: 2, rgb: [[0; 3], [100; 3]].concat().repeat(4) };
        let small = pixels.at_most(2);
        assert_eq!((small.width, small.height, small.rgb), (2, 1, vec![50; 6]));
        let cut = png(png::ColorType::Rgb, 1, 1, &[1, 2, 3]);
        let cut = Picture { data: cut.data.map(|data| data[..40].to_vec()), ..cut };
        assert_eq!(sequence(Graphics::Sixel, &cut), None);
        let huge = Picture { size: (100_000, 100_000), ..cut };
        assert_eq!(sequence(Graphics::Sixel, &huge), None);
    }
}
