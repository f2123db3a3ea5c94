//! The broker as one shard sees it: what request handlers work with. One per shard, shared by its connections.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use protocol::compression::CodecContexts;
use shard::budget::Budget;
use shard::controller::{ControllerCommand, ControllerResponse};
use shard::coordinator::driver::{GroupPage, PageCursor};
use shard::env::Env;
use shard::fetch::session::FetchSessions;
use shard::ids::LogDir;
use shard::moves::MoveAnswer;
use shard::retention::RetentionPass;
use shard::router::Router;
use shard::runtime::port::PortReply;
use storage::notify::Notify;
use storage::types::LogId;

use crate::api::fetch_sessions::SessionStep;
use crate::api::init_producer_id::ProducerIds;
use crate::config::settings::Settings;
use crate::control::{CONTROLLER_SHARD, CommandReply};
use crate::listener::answer::SharedPieces;
use crate::listener::complaints::Complaints;
use crate::log_dirs::LogDirs;
use crate::observe::metrics::Metrics;
use crate::observe::shard::{ShardSnapshot, Vitals};
use crate::observe::stages::TracedRequest;
use crate::publish::Publication;
use crate::view::View;

/// What the process says to its shards, beside requests.
#[derive(Debug)]
pub enum NodeMessage {
    /// New metadata.
    Publish(Publication),
    /// To the controller's shard: a command and where its answer goes.
    Command(ControllerCommand, CommandReply),
    /// To the controller's shard: create topics that clients named.
    AutoCreate(Vec<String>),
    /// To the shard that holds a fetch session: a step of it, of a connection elsewhere.
    Session(SessionStep),
    /// From the admin server: what the shard has counted.
    Snapshot(PortReply<ShardSnapshot>),
    /// From the admin server: the newest requests that the shard's connections have traced.
    Requests(PortReply<Vec<TracedRequest>>),
    /// From the admin server: a part of the shard's groups and committed offsets.
    Groups(Option<PageCursor>, PortReply<GroupPage>),
    /// From the admin server: whether the shard answers, and what it lacks.
    Vitals(PortReply<Vitals>),
    /// A log directory failed on some shard: it is offline on all.
    DirFailed(LogDir),
    /// To the owner of a partition: it is to be in this log directory, and where it is told whether that is accepted.
    Move(LogId, LogDir, Option<flume::Sender<MoveAnswer>>),
    /// To the controller's shard: the partition of that name (`<topic>-<partition>`) goes there when it is created.
    Prefer(String, LogDir, flume::Sender<()>),
    /// To the controller's shard: a partition is in another log directory now.
    Moved(LogId, LogDir),
    /// To the controller's shard: partitions of this node that cannot be served any more.
    Lost(Vec<LogId>),
    /// From the admin server: look now for what retention removes, and say what it was.
    Retain(PortReply<RetentionPass>),
    /// Stop: no new connections, finish what has begun.
    Stop,
}

/// The broker on one shard.
pub struct Broker<E: Env> {
    /// Clock, tasks, timers.
    pub env: E,
    /// The way to all shards.
    pub router: Router<NodeMessage>,
    /// The process's settings.
    pub settings: Arc<Settings>,
    /// The log directories.
    pub log_dirs: LogDirs,
    /// This shard's memory.
    pub budget: Budget,
    /// This shard's counters.
    pub metrics: Rc<Metrics>,
    /// Fetch sessions opened by this shard's connections.
    pub sessions: RefCell<FetchSessions>,
    /// Producer ids that this shard may give out.
    pub producer_ids: ProducerIds,
    /// Compression contexts of this shard, large and reused.
    pub codecs: RefCell<CodecContexts>,
    view: RefCell<Rc<View>>,
    viewed: Notify,
    /// What answers on their way to clients share with what is kept here.
    pub(crate) shared_pieces: Rc<SharedPieces>,
    /// What this shard has said about bad connections.
    pub complaints: RefCell<Complaints>,
    is_stopping: Cell<bool>,
    stopping: Notify,
}

impl<E: Env> Broker<E> {
    /// The broker on the shard of `router`, which knows the metadata of `view` so far.
    #[must_use]
    pub fn new(
        env: E,
        router: Router<NodeMessage>,
        settings: Arc<Settings>,
        log_dirs: LogDirs,
        budget: Budget,
        view: View,
    ) -> Self {
        let (shard, shards) = (router.shard(), router.shards());
        let metrics = Metrics::default();
        metrics.stages.trace_one_of(settings.trace_interval);
        let slots = settings.fetch_session_slots.div_ceil(usize::from(shards));
        Self {
            env,
            router,
            settings,
            log_dirs,
            budget,
            metrics: Rc::new(metrics),
            sessions: RefCell::new(FetchSessions::new(shard, shards, slots)),
            producer_ids: ProducerIds::default(),
            codecs: RefCell::default(),
            view: RefCell::new(Rc::new(view)),
            viewed: Notify::new(),
            shared_pieces: Rc::default(),
            complaints: RefCell::default(),
            is_stopping: Cell::new(false),
            stopping: Notify::new(),
        }
    }

    /// The metadata now. A request takes it once, so that it sees one state.
    #[must_use]
    pub fn view(&self) -> Rc<View> {
        self.view.borrow().clone()
    }

    /// The metadata from now on.
    pub fn set_view(&self, view: View) {
        *self.view.borrow_mut() = Rc::new(view);
        self.viewed.notify();
    }

    /// Sends off the creation of topics that a client named and that do not exist (MD-4), if that is allowed here.
    pub fn create_automatically(&self, names: Vec<String>) {
        if self.settings.auto_create_topics {
            self.router
                .tell(shard::ids::ShardId(0), NodeMessage::AutoCreate(names));
        }
    }

    /// Has the controller carry a command out; `None` when it has too much to do or the node stops.
    pub async fn command(&self, command: ControllerCommand) -> Option<ControllerResponse> {
        let (reply, answer) = flume::bounded(1);
        self.router
            .tell(CONTROLLER_SHARD, NodeMessage::Command(command, reply));
        answer.recv_async().await.ok()
    }

    /// Tells the controller that partitions of this node cannot be served any more.
    pub fn lost(&self, logs: Vec<LogId>) {
        if !logs.is_empty() {
            self.router.tell(CONTROLLER_SHARD, NodeMessage::Lost(logs));
        }
    }

    /// Total and usable bytes of the file system of a log directory; `None` when it does not say.
    #[must_use]
    pub fn log_dir_space(dir: &Path) -> Option<(i64, i64)> {
        let stat = nix::sys::statvfs::statvfs(dir).ok()?;
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.fragment_size())).ok();
        Some((bytes(stat.blocks())?, bytes(stat.blocks_available())?))
    }

    /// Ends when this shard knows at least this broker, so that clients can be answered.
    pub async fn has_metadata(&self) {
        self.viewed
            .until(|| self.view.borrow().image.brokers.unfenced().next().map(|_| ()))
            .await;
    }

    /// Ends when the broker begins to stop.
    pub async fn stopping(&self) {
        self.stopping.until(|| self.is_stopping.get().then_some(())).await;
    }

    /// Whether the broker has begun to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// Begins to stop: connections read no further request.
    pub fn stop(&self) {
        self.is_stopping.set(true);
        self.stopping.notify();
    }
}
