//! What the broker logs goes into the trace of the simulation on this thread; an error is a violation, unless its disk is one
//! that fails: no other simulated fault is one that the broker should complain about.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::rc::Rc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::trace::Trace;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Trace>>> = const { RefCell::new(None) };
}

struct ToTrace;

/// Runs `work` with the broker's log going to `trace`.
pub fn into_trace<T>(trace: &Rc<Trace>, work: impl FnOnce() -> T) -> T {
    CURRENT.with(|current| *current.borrow_mut() = Some(trace.clone()));
    let done = tracing::subscriber::with_default(ToTrace, work);
    CURRENT.with(|current| *current.borrow_mut() = None);
    done
}

impl Subscriber for ToTrace {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let Some(trace) = CURRENT.with(|current| current.borrow().clone()) else {
            return;
        };
        let mut line = String::new();
        event.record(&mut Fields(&mut line));
        if *event.metadata().level() == Level::ERROR && !trace.allows_errors() {
            trace.violation(format_args!("the broker says: {line}"));
        } else {
            trace.event(format_args!("broker:{line}"));
        }
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
