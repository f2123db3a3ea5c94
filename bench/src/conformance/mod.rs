//! Differential conformance: named cases that ask the same of Apache Kafka and of our broker. What Kafka 4.3.1 answered is
//! committed under `bench/tests/conformance/`; a case's transcript must be equal to it, or the case says why it differs and
//! our transcript is committed too.

pub mod batch;
mod cases;
mod dialogue;
mod golden;
mod records;
mod render;
mod table;
mod target;
pub mod uncovered;
pub(crate) mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use self::cases::cases;
pub use self::dialogue::Dialogue;
pub use self::golden::{Golden, Verdict, judge};
pub use self::table::markdown;
pub use self::target::{Setup, Target, Who};

use crate::error::Result;

/// Cases of one set-up that run at the same time: most of them wait for the broker.
const THREADS: usize = 6;

/// One thing a client can rely on.
#[derive(Clone, Copy)]
pub struct Case {
    /// Number in the surface map or of the bug report, and what it is about: `PR-21 client base offset not 0`.
    pub name: &'static str,
    /// The broker's settings.
    pub setup: &'static Setup,
    /// Why our answers differ from Kafka's, if they do on purpose.
    pub differs: Option<&'static str>,
    run: fn(&mut Dialogue<'_>) -> Result<()>,
}

impl Case {
    const fn new(name: &'static str, run: fn(&mut Dialogue<'_>) -> Result<()>) -> Self {
        Self {
            name,
            setup: &target::DEFAULT,
            differs: None,
            run,
        }
    }

    const fn on(mut self, setup: &'static Setup) -> Self {
        self.setup = setup;
        self
    }

    const fn differs(mut self, reason: &'static str) -> Self {
        self.differs = Some(reason);
        self
    }

    /// The first word of the name.
    pub fn number(&self) -> &'static str {
        self.name.split(' ').next().unwrap_or(self.name)
    }

    /// Every number in the name: `FE-30` and `FE-32` of `FE-30 a rack (FE-32)`.
    pub fn numbers(&self) -> impl Iterator<Item = &'static str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
        self.name
            .split(move |c| !is_part(c))
            .filter(|word| is_number(word))
    }

    /// Whether it can be tried on a broker that was started without it.
    pub fn has_default_settings(&self) -> bool {
        std::ptr::eq(self.setup, &raw const target::DEFAULT)
    }

    /// Runs it and returns the transcript.
    fn transcript(&self, target: &Target) -> String {
        let mut dialogue = Dialogue::new(target, self.number());
        let outcome = (self.run)(&mut dialogue);
        dialogue.finish(outcome)
    }
}

/// Letters, a dash, a number.
fn is_number(word: &str) -> bool {
    word.split_once('-').is_some_and(|(letters, digits)| {
        let is_area = !letters.is_empty() && letters.bytes().all(|b| b.is_ascii_uppercase());
        is_area && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Runs cases against brokers started for them below `dir` and returns the transcripts by case name.
///
/// # Errors
/// A broker does not start.
pub fn run(who: &Who, cases: &[Case], dir: &Path) -> Result<BTreeMap<&'static str, String>> {
    let mut by_setup = BTreeMap::<_, Vec<Case>>::new();
    for case in cases {
        by_setup.entry(case.setup.name).or_default().push(*case);
    }
    let transcripts = Mutex::new(BTreeMap::new());
    let at_once = |group: &[Case]| -> Result<()> {
        let target = Target::start(who, group[0].setup, dir)?;
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(case) = group.get(next.fetch_add(1, Ordering::Relaxed)) {
                let transcript = case.transcript(&target);
                let mut done = transcripts
                    .lock()
                    .expect("no case panics while it holds the lock");
                done.insert(case.name, transcript);
            }
        };
        let threads = if group[0].setup.restarts { 1 } else { THREADS };
        std::thread::scope(|scope| {
            (0..threads).for_each(|_| {
                scope.spawn(work);
            });
        });
        Ok(())
    };
    for group in by_setup.values() {
        at_once(group)?;
    }
    Ok(transcripts.into_inner().expect("the threads have ended"))
}
