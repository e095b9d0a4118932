//! What the code of a run displays beside its text: pictures, tables and other forms, kept on disk with the run's output.

use std::sync::{Arc, Mutex};

use imagesize::{ImageSize, ImageType};

use super::kept::{Item, KeptDisplays, KeptForm, KeptStream, Outputs, lock};
use crate::session::{Display, Form, Picture};

/// Displayed objects of one run; the guest sends as many.
const MOST: usize = 100;
/// Bytes of the line that says which forms follow.
const LONGEST_TABLE: u64 = 8 << 10;
/// Forms of one object, and characters of a MIME type.
const MOST_FORMS: usize = 16;
const LONGEST_TYPE: usize = 100;
/// Bytes from the start of a picture in which its size is looked for.
const HEAD_OF_PICTURE: u64 = 256 << 10;

/// How many pictures a result contains.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct PictureBudget {
    pub(in crate::session) count: usize,
    /// Bytes of all of them.
    pub(in crate::session) bytes: u64,
}

/// Bytes of a picture that models take: 5 MB in base64.
const LARGEST_PICTURE: u64 = 3_750_000;
/// Pixels of a side of a picture that models take.
const LONGEST_SIDE: usize = 8000;

/// Collects what a run displays. Nothing of it stays in memory.
#[derive(Debug)]
pub(in crate::session) struct DisplayCapture {
    outputs: Arc<Mutex<Outputs>>,
    file: Option<KeptStream>,
    /// Where the object that is arriving starts, and its bytes so far.
    arriving: Option<(u64, u64)>,
    items: Vec<Item>,
    /// Objects that could not be kept.
    lost: usize,
}

impl DisplayCapture {
    pub(in crate::session) fn new(outputs: Arc<Mutex<Outputs>>) -> Self {
        Self { outputs, file: None, arriving: None, items: Vec::new(), lost: 0 }
    }

    /// Returns the picture of the object that arrived last, if it has one, with the number of the object.
    pub(in crate::session) fn last_picture(&self) -> Option<(usize, Picture)> {
        let mut budget = PictureBudget { count: 1, bytes: LARGEST_PICTURE };
        let picture = picture(self.file.as_ref()?, self.items.last()?, &mut budget)?;
        Some((self.items.len(), picture))
    }

    /// Makes the object that arrived last readable before the run ends.
    pub(in crate::session) fn show_last(&self, run: u32) {
        if let (Some(file), Some(item)) = (&self.file, self.items.last()) {
            lock(&self.outputs).show(run, file, item);
        }
    }

    /// Returns the MIME types of the object that arrived last.
    pub(in crate::session) fn last_types(&self) -> Vec<String> {
        let last = self.items.last();
        last.map(|item| item.forms.iter().map(|form| form.mime.clone()).collect()).unwrap_or_default()
    }

    /// Takes a piece of an object, and returns whether it is kept whole by now. `after` is the number of bytes of standard
    /// output before it.
    pub(in crate::session) fn push(&mut self, piece: &[u8], is_last: bool, after: u64) -> bool {
        if self.items.len() >= MOST {
            self.lost += usize::from(is_last);
            return false;
        }
        if self.file.is_none() {
            self.file = KeptStream::start(&self.outputs);
        }
        let Some(file) = &mut self.file else {
            self.lost += usize::from(is_last);
            return false;
        };
        let (start, length) = self.arriving.unwrap_or((file.length(), 0));
        file.append(piece, &self.outputs);
        let length = length + piece.len() as u64;
        self.arriving = Some((start, length)).filter(|_| !is_last);
        if !is_last {
            return false;
        }
        match parse(file, start, length) {
            Some(forms) if file.length() == start + length => self.items.push(Item { after, forms }),
            _ => {
                self.lost += 1;
                return false;
            }
        }
        true
    }

    /// Returns what was displayed, with the first pictures of a result, and all of it to be kept. `lines` is the number of
    /// lines of standard output in so many bytes.
    pub(in crate::session) fn finish(
        self,
        run: u32,
        budget: PictureBudget,
        lines: impl Fn(u64) -> usize,
        notices: &mut Vec<String>,
    ) -> (Vec<Display>, Option<KeptDisplays>) {
        if self.lost > 0 {
            let objects = if self.lost == 1 { "object" } else { "objects" };
            let lost = self.lost;
            notices.push(format!(
                "{lost} displayed {objects} could not be kept: a run keeps {MOST}, and 128 MiB"
            ));
        }
        let Some(file) = self.file.filter(|_| !self.items.is_empty()) else { return (Vec::new(), None) };
        let kept = KeptDisplays { file, items: self.items };
        let mut left = budget;
        let display = |(index, item): (usize, &Item)| Display {
            uri: format!("codebridge://runs/{run}/display/{}", index + 1),
            after_line: lines(item.after),
            forms: item
                .forms
                .iter()
                .map(|form| Form { mime: form.mime.clone(), bytes: form.length })
                .collect(),
            picture: picture(&kept.file, item, &mut left),
        };
        (kept.items.iter().enumerate().map(display).collect(), Some(kept))
    }
}

/// Reads the table at the start of an object; None if it is not what `FRAMES.md` says.
fn parse(file: &KeptStream, start: u64, length: u64) -> Option<Vec<KeptForm>> {
    let head = file.read(start, length.min(LONGEST_TABLE));
    let end = head.iter().position(|byte| *byte == b'\n')?;
    let table: Vec<(String, u64)> = serde_json::from_slice(&head[..end]).ok()?;
    let mut at = start + end as u64 + 1;
    let mut forms = Vec::with_capacity(table.len());
    for (mime, length) in table {
        forms.push(KeptForm { mime, start: at, length });
        at = at.checked_add(length)?;
    }
    let is_whole = at == start + length && (1..=MOST_FORMS).contains(&forms.len());
    (is_whole && forms.iter().all(|form| is_type(&form.mime))).then_some(forms)
}

/// Returns what a picture is, whatever was said of it, and its size in pixels.
fn picture_of(data: &[u8]) -> Option<(&'static str, ImageSize)> {
    let mime = match imagesize::image_type(data).ok()? {
        ImageType::Png => "image/png",
        ImageType::Jpeg => "image/jpeg",
        _ => return None,
    };
    Some((mime, imagesize::blob_size(data).ok()?))
}

/// Whether text is a MIME type: <https://www.rfc-editor.org/rfc/rfc6838#section-4.2>, with parameters.
fn is_type(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+/;= ".contains(&byte);
    text.len() <= LONGEST_TYPE && text.contains('/') && text.bytes().all(is_allowed)
}

/// Returns the picture of an object, if it has one that is what its type says; its data if that fits into what is left of
/// the budget.
fn picture(file: &KeptStream, item: &Item, left: &mut PictureBudget) -> Option<Picture> {
    let form = item.forms.iter().find(|form| matches!(&*form.mime, "image/png" | "image/jpeg"))?;
    let may_fit = left.count > 0 && form.length <= left.bytes.min(LARGEST_PICTURE);
    let needed = if may_fit { form.length } else { form.length.min(HEAD_OF_PICTURE) };
    let data = file.read(form.start, needed);
    let (mime, size) = picture_of(&data)?;
    let fits = may_fit && size.width.max(size.height) <= LONGEST_SIDE;
    if fits {
        left.count -= 1;
        left.bytes -= form.length;
    }
    Some(Picture {
        mime: mime.to_owned(),
        bytes: form.length,
        size: (size.width, size.height),
        data: fits.then_some(data),
    })
}

#[cfg(test)]
mod tests {
    use super::super::kept::UnderWay;
    use super::*;

    const BUDGET: PictureBudget = PictureBudget { count: 2, bytes: 100 };

    /// The start of a picture of 1x2 pixels, and any bytes.
    const PNG: [u8; 60] = {
        let mut png = [0; 60];
        let start = *b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x02";
        let mut at = 0;
        while at < start.len() {
            png[at] = start[at];
            at += 1;
        }
        png
    };

    fn png(bytes: usize) -> Vec<u8> {
        object(&[("image/png", &PNG[..bytes])])
    }

    fn object(forms: &[(&str, &[u8])]) -> Vec<u8> {
        let table: Vec<_> = forms.iter().map(|(mime, data)| (mime, data.len())).collect();
        let mut bytes = serde_json::to_vec(&table).unwrap();
        bytes.push(b'\n');
        forms.iter().for_each(|(_, data)| bytes.extend_from_slice(data));
        bytes
    }

    fn captured(objects: &[Vec<u8>]) -> (Vec<Display>, Option<KeptDisplays>, Vec<String>) {
        let mut capture = DisplayCapture::new(Arc::default());
        for (index, object) in objects.iter().enumerate() {
            let (first, second) = object.split_at(object.len() / 2);
            capture.push(first, false, index as u64);
            capture.push(second, true, index as u64);
        }
        let mut notices = Vec::new();
        let (displays, kept) = capture.finish(7, BUDGET, |bytes| bytes as usize * 10, &mut notices);
        (displays, kept, notices)
    }

    #[test]
    fn objects_are_listed_with_their_forms_and_read_again() {
        let (displays, kept, notices) =
            captured(&[object(&[("text/html", b"<b>"), ("application/json", b"{}")]), png(30)]);
        assert_eq!(notices, [""; 0]);
        assert_eq!(displays[0].uri, "codebridge://runs/7/display/1");
        assert_eq!((displays[0].after_line, displays[1].after_line), (0, 10));
        assert_eq!(displays[0].forms[0], Form { mime: "text/html".into(), bytes: 3 });
        assert!(displays[0].picture.is_none());
        assert_eq!(displays[1].picture.as_ref().unwrap().data.as_deref(), Some(&PNG[..30]));
        let kept = kept.unwrap();
        assert_eq!(
            kept.types(),
            [vec!["text/html".to_owned(), "application/json".into()], vec!["image/png".into()]]
        );
        assert_eq!(kept.read(1).unwrap()[1], ("application/json".to_owned(), b"{}".to_vec()));
        assert!(kept.read(0).is_none() && kept.read(3).is_none());
    }

    #[test]
    fn pictures_beyond_the_budget_are_named_without_their_data() {
        let (displays, ..) = captured(&[png(60), png(50), png(40), png(30)]);
        let data: Vec<bool> =
            displays.iter().map(|one| one.picture.as_ref().unwrap().data.is_some()).collect();
        assert_eq!(data, [true, false, true, false]);
    }

    #[test]
    fn a_picture_is_what_its_type_says() {
        let (displays, ..) = captured(&[object(&[("image/png", b"text")]), png(24)]);
        assert!(displays[0].picture.is_none());
        assert_eq!(displays[1].picture.as_ref().unwrap().size, (1, 2));
        let (displays, ..) = captured(&[object(&[("image/jpeg", &PNG)])]);
        assert_eq!(displays[0].picture.as_ref().unwrap().mime, "image/png");
    }

    #[test]
    fn a_picture_that_models_refuse_is_left_out() {
        let mut wide = PNG;
        wide[16..20].copy_from_slice(&8001_u32.to_be_bytes());
        let (displays, ..) = captured(&[object(&[("image/png", &wide)])]);
        let picture = displays[0].picture.as_ref().unwrap();
        assert_eq!((picture.size, &picture.data), ((8001, 2), &None));
    }

    #[test]
    fn what_is_not_an_object_is_counted() {
        let wrong: [&[u8]; 8] = [
            b"",
            b"no table",
            b"[]\n",
            b"[[\"image/png\", 5]]\nfour",
            b"[[\"image/png\", 3]]\nfour",
            b"[[\"image/png\", 18446744073709551615]]\nfour",
            b"[[\"no type\", 4]]\nfour",
            b"[[\"text/\x1b[2J\", 4]]\nfour",
        ];
        let (displays, kept, notices) = captured(&wrong.map(<[u8]>::to_vec));
        assert!(displays.is_empty() && kept.is_none());
        assert_eq!(notices, ["8 displayed objects could not be kept: a run keeps 100, and 128 MiB"]);
    }

    #[test]
    fn objects_can_be_read_while_their_run_is_under_way() {
        let outputs = Arc::<Mutex<Outputs>>::default();
        let under_way = UnderWay::new(Arc::clone(&outputs), 7);
        let mut capture = DisplayCapture::new(Arc::clone(&outputs));
        for (number, text) in [(1, b"one"), (2, b"two")] {
            assert!(capture.push(&object(&[("text/html", text)]), true, 0));
            capture.show_last(7);
            let shown = lock(&outputs).displays(7).unwrap();
            assert_eq!(shown.read(number).unwrap(), [("text/html".to_owned(), text.to_vec())]);
            assert_eq!((shown.items.len(), shown.read(number + 1)), (number, None));
        }
        assert!(lock(&outputs).displays(8).is_none() && lock(&outputs).runs().is_empty());
        drop(under_way);
        assert!(lock(&outputs).displays(7).is_none(), "nobody kept it");
    }

    #[test]
    fn no_run_displays_without_end() {
        let objects = vec![object(&[("text/html", b"x")]); MOST + 5];
        let (displays, _, notices) = captured(&objects);
        assert_eq!(
            (displays.len(), notices),
            (MOST, vec!["5 displayed objects could not be kept: a run keeps 100, and 128 MiB".to_owned()])
        );
    }
}
