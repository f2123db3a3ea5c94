//! The admin address: metrics, health and a short index over HTTP, for people, probes and Prometheus. It runs on one side
//! thread with a runtime of its own and talks to the shards through their inboxes, so that a slow scrape holds up nobody.
//!
//! It answers from before the first shard runs until the process ends: a probe can tell starting, serving and stopping.

mod cleaner;
mod door;
mod exposition;
mod families;
mod groups;
mod health;
mod io_families;
mod loss_window;
mod moves;
mod node_families;
mod process;
mod retention;
mod scrape;
mod space_families;
mod stages;
mod usage;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use shard::router::ShardMessage;
use shard::runtime::executor::PulseReader;
use shard::runtime::mailbox::MailboxGauges;
use shard::runtime::net::AcceptCounters;
use shard::runtime::port::ShardPort;

use crate::config::settings::Settings;
use crate::exit::{Failure, Status};
use crate::node::NodeMessage;
use crate::observe::progress::Progress;
use crate::system::{HostReport, holder};

use self::usage::Usage;

/// How long a shard may take to answer before a scrape goes on without it, and before it counts as dead.
const SHARD_ANSWER_MAX: Duration = Duration::from_secs(5);

/// What the process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Recovering, opening logs.
    Starting = 0,
    /// Clients are served.
    Serving = 1,
    /// Finishing what has begun.
    Stopping = 2,
}

/// What the admin server knows from the start.
#[derive(Debug)]
pub struct Facts {
    /// What the host allows.
    pub host: HostReport,
    /// The settings of this process.
    pub settings: Arc<Settings>,
    /// When the process began to start.
    pub began: Instant,
    /// How far recovery is.
    pub progress: Arc<Progress>,
}

/// What is known once the shards run.
#[derive(Clone)]
pub struct Running {
    /// The way to the shards.
    pub port: ShardPort<ShardMessage<NodeMessage>>,
    /// The shards' stall reports.
    pub pulses: PulseReader,
    /// The depth of their mailboxes.
    pub gauges: MailboxGauges,
}

/// The admin server as the rest of the process sees it. Cheap to clone.
#[derive(Clone)]
pub struct Admin(Arc<Inner>);

struct Inner {
    facts: Facts,
    phase: AtomicU8,
    running: OnceLock<Running>,
    /// What the acceptors have counted, once clients are let in, and how long the start took.
    serving: OnceLock<(Vec<Arc<AcceptCounters>>, Duration)>,
    usage: Usage,
}

/// A bound address that nobody answers on yet.
#[derive(Debug)]
pub struct AdminListener(TcpListener);

impl AdminListener {
    /// Binds `penstock.admin.listener`.
    ///
    /// # Errors
    /// A sentence: the port is in use, or the address is none of this host.
    pub fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let refuse = |e: io::Error| {
            let (holder, advice) = match e.kind() {
                io::ErrorKind::AddrInUse => (
                    holder::of_port(address.port()),
                    "stop the process that has it, or choose another one",
                ),
                _ => (String::new(), "choose another one"),
            };
            let sentence = format!(
                "the admin address {address} cannot be opened: {e}{holder}; {advice} with penstock.admin.listener (empty turns it off)"
            );
            Failure::new(Status::Unavailable, sentence)
        };
        let listener = TcpListener::bind(address).map_err(refuse)?;
        listener.set_nonblocking(true).map_err(refuse)?;
        Ok(Self(listener))
    }

    /// The bound address, with the port the kernel chose for port 0.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        self.0.local_addr().ok()
    }
}

impl Admin {
    /// The server's state; without a listener nobody asks for it.
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        Self(Arc::new(Inner {
            facts,
            phase: AtomicU8::new(Phase::Starting as u8),
            running: OnceLock::new(),
            serving: OnceLock::new(),
            usage: Usage::default(),
        }))
    }

    /// Answers on `listener` from now on, until the process ends; further connections are closed at once.
    ///
    /// # Errors
    /// When the thread or its runtime cannot be had.
    pub fn serve(&self, listener: AdminListener, connections_max: usize) -> Result<(), Failure> {
        let failed =
            |e: io::Error| Failure::new(Status::System, format!("no thread for the admin server: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let routes = routes(self.clone());
        std::thread::Builder::new()
            .name("admin".into())
            .spawn(move || {
                let served = runtime.block_on(async move {
                    let listener = door::Door::new(listener.0, connections_max)?;
                    axum::serve(listener, routes).await
                });
                if let Err(error) = served {
                    tracing::error!(%error, "the admin server has ended; metrics and health are gone");
                }
            })
            .map_err(failed)?;
        Ok(())
    }

    /// The shards run and can be asked.
    pub fn shards_run(&self, running: Running) {
        // Set once in a process's life; a second call would change nothing.
        let _ = self.0.running.set(running);
    }

    /// Clients are let in.
    pub fn serves(&self, acceptors: Vec<Arc<AcceptCounters>>, start_took: Duration) {
        let _ = self.0.serving.set((acceptors, start_took));
        self.0.phase.store(Phase::Serving as u8, Ordering::Release);
    }

    /// The process has been asked to stop.
    pub fn stops(&self) {
        self.0.phase.store(Phase::Stopping as u8, Ordering::Release);
    }

    fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Stopping,
        }
    }
}

fn routes(admin: Admin) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/requests", get(stages::requests))
        .route("/retention", post(retention::run))
        .fallback(|| async { (StatusCode::NOT_FOUND, "nothing here; / lists what there is\n") })
        .with_state(admin)
}

async fn index(State(admin): State<Admin>) -> String {
    let settings = &admin.0.facts.settings;
    format!(
        "penstock {} node {} {}\n\n/metrics       Prometheus text\n/health/live   200 while the process works\n\
         /health/ready  200 while clients are served; says what is degraded\n\
         /requests      the newest traced requests, where their time went\n\
         /retention     POST: looks for old segments now\n",
        env!("CARGO_PKG_VERSION"),
        settings.node_id,
        admin.phase().word()
    )
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    let text = scrape::scrape(&admin).await;
    ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], text)
}

impl Phase {
    fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Stopping => "stopping",
        }
    }
}
