//! Text of others, made safe to print.

use std::borrow::Cow;

/// Characters that move or hide what is around them, beside the control characters: the controls of bidirectional text of
/// [UAX #9](https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters), and characters without a glyph of
/// [UTR #36](https://www.unicode.org/reports/tr36/#Recommendations_General) and of the block of tags. Joiners (U+200C, U+200D)
/// and the emoji selector (U+FE0F) are in ordinary text and stay.
const INVISIBLE: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200b}'),
    ('\u{200e}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{e0000}', '\u{e007f}'),
];

/// Whether a character moves or hides what is around it.
fn is_invisible(c: char) -> bool {
    !c.is_ascii() && INVISIBLE.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// Returns a text with U+FFFD in place of what would steer a terminal or hide something on it: the one cleaning of everything
/// that is printed and not ours. Newlines and tabs stay.
pub fn visible(text: &str) -> String {
    replace(text, |c| is_invisible(c) || (c.is_control() && !matches!(c, '\n' | '\t'))).into_owned()
}

/// The same for a text in one line.
pub fn visible_line(text: &str) -> String {
    replace(text, |c| is_invisible(c) || c.is_control()).into_owned()
}

/// The same for a text with control characters of our own, such as colours.
pub fn visible_between_controls(text: &str) -> Cow<'_, str> {
    replace(text, is_invisible)
}

/// The same for a JSON text, where such characters can only be in strings: they are escaped, and the value stays the same.
pub fn visible_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_invisible(c) || (c.is_control() && c != '\n') {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        } else {
            text.push(c);
        }
    }
    text
}

fn replace(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    match text.contains(&is_bad) {
        true => Cow::Owned(text.replace(is_bad, "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal_or_hides_on_it() {
        let bad = "\u{1b}\u{7f}\u{9b}\r\0\u{ad}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\
                   \u{2060}\u{2064}\u{2066}\u{2069}\u{feff}\u{e0001}\u{e007f}";
        for c in bad.chars() {
            assert_eq!(visible(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
        assert_eq!(visible_line("a\nb\tc"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(visible_between_controls("\u{1b}[1ma\u{202e}"), "\u{1b}[1ma\u{fffd}");
    }

    #[test]
    fn json_keeps_its_value() {
        let json = "{\n\"a\u{202e}\": \"\u{9b}\u{e0001}ü\"}";
        assert_eq!(visible_json(json), "{\n\"a\\u202e\": \"\\u009b\\udb40\\udc01ü\"}");
    }

    #[test]
    fn ordinary_text_of_any_language_stays() {
        for text in
            ["a\tb\nc", "grüße", "日本語", "עברית", "نام‌ها", "हिन्दी", "👩\u{200d}🔬 ❤\u{fe0f}", "a\u{a0}b"]
        {
            assert_eq!(visible(text), text);
        }
    }
}
