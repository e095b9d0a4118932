//! Which code an input reaches: the counters that LLVM puts at every edge
//! (<https://clang.llvm.org/docs/SanitizerCoverage.html>, inline 8-bit counters). `tests/fuzz` compiles the crates with
//! them; without them, nothing counts as new.

#![expect(unsafe_code, reason = "the counters are memory of the instrumented program")]

use std::slice;
use std::sync::{Mutex, PoisonError};

/// Start and length of the counters of each part of the program.
static REGIONS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// The instrumented program calls it before `main`, once for each part.
// SAFETY: the name is LLVM's for exactly this function, and nobody else defines it.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    let (start, length) = (start as usize, (stop as usize).saturating_sub(start as usize));
    let mut regions = REGIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if length > 0 && !regions.contains(&(start, length)) {
        regions.push((start, length));
    }
}

/// What was reached so far. The counters are those of the process: one check at a time uses them.
pub(crate) struct Coverage {
    regions: Vec<(usize, usize)>,
    /// For each counter, the classes of counts that were seen.
    seen: Vec<Vec<u8>>,
}

impl Coverage {
    pub(crate) fn find() -> Self {
        let regions = REGIONS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let seen = regions.iter().map(|(_, length)| vec![0; *length]).collect();
        Self { regions, seen }
    }

    pub(crate) fn clear(&mut self) {
        self.regions.iter().for_each(|region| counters(*region).fill(0));
    }

    /// Whether something was reached since `clear` that was never reached before, or as often.
    pub(crate) fn is_new(&mut self) -> bool {
        let mut is_new = false;
        for (region, seen) in self.regions.iter().zip(&mut self.seen) {
            let (counters, seen) = (counters(*region).chunks(8), seen.chunks_mut(8));
            for (counters, seen) in counters.zip(seen).filter(|(counters, _)| **counters != [0; 8]) {
                for (count, seen) in counters.iter().zip(seen) {
                    let class = class_of(*count);
                    is_new |= class & !*seen != 0;
                    *seen |= class;
                }
            }
        }
        is_new
    }

    pub(crate) fn summary(&self) -> String {
        let all: usize = self.seen.iter().map(Vec::len).sum();
        let reached = self.seen.iter().flatten().filter(|classes| **classes != 0).count();
        match all {
            0 => "without coverage".into(),
            all => format!("{reached} of {all} edges"),
        }
    }
}

fn counters((start, length): (usize, usize)) -> &'static mut [u8] {
    // SAFETY: the program registered this range, which is a static of its own that lives as long as it does. The counters
    // are changed without synchronisation by design, as everywhere where they are used; the slice lives for one pass.
    unsafe { slice::from_raw_parts_mut(start as *mut u8, length) }
}

/// Returns a bit for how often something was reached: 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127, more.
fn class_of(count: u8) -> u8 {
    match count {
        0 => 0,
        1..=3 => 1 << (count - 1),
        4..=7 => 1 << 3,
        8..=15 => 1 << 4,
        16..=31 => 1 << 5,
        32..=127 => 1 << 6,
        128.. => 1 << 7,
    }
}
