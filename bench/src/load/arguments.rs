//! The plan that flags make with workload and driver files: a flag is stronger than a file, a file than the default, which is that of
//! Kafka's clients.

use std::path::{Path, PathBuf};
use std::time::Duration;

use broker::client::Address;
use broker::exit::{Failure, Status};

use super::batch::STAMP_BYTES;
use super::flags::RateWords;
pub use super::flags::RunArguments;
use super::keys::Keys;
use super::omb::{Driver, KeyDistributor, Workload};
use super::payload::Payload;
use super::plan::{
    BacklogPlan, CONNECTIONS_MAX, ConsumerPlan, Load, Plan, ProducerPlan, RATE_UNLIMITED, SearchPlan,
    THREADS_MAX, TopicPlan,
};

fn usage(sentence: impl Into<String>) -> Failure {
    Failure::new(Status::Usage, sentence)
}

impl RunArguments {
    /// Reads the files and decides everything.
    ///
    /// # Errors
    /// A file or flag is wrong; the sentence says which and what would be right.
    pub fn plan(&self) -> Result<Plan, Failure> {
        let workload = self.workload.as_deref().map(Workload::read).transpose()?;
        let driver = self.driver.as_deref().map(Driver::read).transpose()?;
        self.resolve(workload.as_ref(), &driver.unwrap_or_default())
    }

    fn resolve(&self, workload: Option<&Workload>, driver: &Driver) -> Result<Plan, Failure> {
        let bootstrap = self.bootstrap(driver)?;
        let topics = self.topics(workload, driver)?;
        let producers = self.producers(workload, driver, topics.names.len())?;
        let consumers = self.consumers(workload, driver, topics.names.len())?;
        let minutes = |minutes: f64| Duration::from_secs_f64(minutes.clamp(0.0, 1e6) * 60.0);
        let of_file = |pick: fn(&Workload) -> f64| workload.map(|workload| minutes(pick(workload)));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let plan = Plan {
            name: self.name.clone().unwrap_or_else(|| name(workload, driver)),
            bootstrap,
            topics,
            producers,
            consumers,
            warmup: self
                .warmup
                .or_else(|| of_file(|w| w.warmup_minutes))
                .unwrap_or(Duration::from_secs(10)),
            time: self
                .time
                .or_else(|| of_file(|w| w.test_minutes))
                .unwrap_or(Duration::from_secs(30)),
            bytes_max: self.max_bytes,
            interval: self.interval.unwrap_or(Duration::from_secs(1)),
            backlog: self.backlog(workload)?,
            threads: self.threads.unwrap_or_else(|| (cores / 2).max(1)),
            pid: self.pid,
            patience: self.timeout.unwrap_or(Duration::from_secs(60)),
        };
        check(&plan)?;
        Ok(plan)
    }

    fn bootstrap(&self, driver: &Driver) -> Result<Vec<Address>, Failure> {
        if self.bootstrap.is_empty() && !driver.bootstrap.is_empty() {
            return Ok(driver.bootstrap.clone());
        }
        let written = if self.bootstrap.is_empty() {
            vec!["localhost:9092".to_owned()]
        } else {
            self.bootstrap.clone()
        };
        let read = |one: &String| {
            Address::parse(one.trim()).ok_or_else(|| {
                usage(format!(
                    "--bootstrap: '{one}' is no HOST:PORT, as localhost:9092 or [::1]:9092"
                ))
            })
        };
        written.iter().map(read).collect()
    }

    fn topics(&self, workload: Option<&Workload>, driver: &Driver) -> Result<TopicPlan, Failure> {
        let count = self.topics.or_else(|| workload.map(|w| w.topics)).unwrap_or(1);
        let partitions = self
            .partitions
            .or_else(|| workload.map(|w| w.partitions_per_topic))
            .unwrap_or(16);
        if count == 0 || partitions == 0 {
            return Err(usage(
                "a run needs at least one topic (--topics) with one partition (--partitions)",
            ));
        }
        // A name of its own for each run, so that none finds what another left.
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let run = unix.map_or(0, |since| since.as_millis()) % 100_000_000_000;
        let pid = std::process::id();
        let mut configs = driver.topic_configs.clone();
        for (name, value) in &self.topic_config {
            configs.retain(|(known, _)| known != name);
            configs.push((name.clone(), value.clone()));
        }
        Ok(TopicPlan {
            exist: !self.topic.is_empty(),
            names: if self.topic.is_empty() {
                (0..count)
                    .map(|number| format!("bench-{run}-{pid}-{number:05}"))
                    .collect()
            } else {
                self.topic.clone()
            },
            partitions,
            replication_factor: self
                .replication_factor
                .or(driver.replication_factor)
                .unwrap_or(-1),
            configs,
            keep: self.keep_topics,
        })
    }

    fn load(&self, workload: Option<&Workload>) -> Result<Load, Failure> {
        let of_file = workload.map(|workload| match workload.producer_rate {
            rate if rate <= 0.0 => RateWords::Search,
            rate => RateWords::Rate(rate),
        });
        let positive = |flag: &str, value: f64| {
            if value > 0.0 && value.is_finite() {
                Ok(value)
            } else {
                Err(usage(format!("{flag} is {value}; it has to be above 0")))
            }
        };
        Ok(match self.rate.or(of_file).unwrap_or(RateWords::Rate(10_000.0)) {
            RateWords::Rate(rate) if rate >= RATE_UNLIMITED => Load::Maximum,
            RateWords::Rate(rate) => Load::Rate(rate),
            RateWords::Maximum => Load::Maximum,
            RateWords::Search => Load::Search(SearchPlan {
                from: positive("--search-from", self.search_from.unwrap_or(10_000.0))?,
                step: self.search_step.unwrap_or(Duration::from_secs(6)),
                p99_ms_max: positive("--search-p99-ms", self.search_p99_ms.unwrap_or(100.0))?,
                behind_s_max: self.search_behind.unwrap_or(Duration::from_secs(2)).as_secs_f64(),
                precision: positive("--search-precision", self.search_precision.unwrap_or(0.05))?,
            }),
        })
    }

    fn payload(&self, workload: Option<&Workload>) -> Result<(Payload, usize), Failure> {
        let size = self
            .message_size
            .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let size = size.or_else(|| workload.map(|w| w.message_size));
        let of_file = workload
            .filter(|w| w.randomized.is_none())
            .and_then(|w| w.payload_file.clone());
        let makes = self.random_bytes_ratio.is_some() || self.payload_pool.is_some();
        let file = self
            .payload_file
            .clone()
            .or_else(|| of_file.filter(|_| !makes && self.message_size.is_none()));
        if let Some(file) = file {
            let value = payload_file(&file, self.workload.as_deref())?;
            if let Some(size) = size.filter(|size| *size != value.len()) {
                let sentence = format!(
                    "{} has {} bytes, and a message is to have {size}",
                    file.display(),
                    value.len()
                );
                return Err(Failure::new(Status::Data, sentence));
            }
            let size = value.len();
            return Ok((Payload::Given(value.into()), size));
        }
        let (share, pool) = workload.and_then(|w| w.randomized).unwrap_or((0.5, 1000));
        let random_share = self.random_bytes_ratio.unwrap_or(share);
        if !(0.0..=1.0).contains(&random_share) {
            return Err(usage(format!(
                "--random-bytes-ratio is {random_share}; it has to be from 0 to 1"
            )));
        }
        let pool = self.payload_pool.unwrap_or(pool).max(1);
        Ok((Payload::Random { random_share, pool }, size.unwrap_or(1024)))
    }

    fn producers(
        &self,
        workload: Option<&Workload>,
        driver: &Driver,
        topics: usize,
    ) -> Result<ProducerPlan, Failure> {
        let (payload, message_bytes) = self.payload(workload)?;
        let acks = match &self.acks {
            Some(text) => super::omb::acks(text)
                .ok_or_else(|| usage(format!("--acks is '{text}'; it has to be all, 1 or 0")))?,
            None => driver.acks.unwrap_or(-1),
        };
        let size = |flag: Option<u64>, of_file: Option<usize>, default: usize| {
            flag.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
                .or(of_file)
                .unwrap_or(default)
        };
        let in_flight_max = self.max_in_flight.or(driver.in_flight_max).unwrap_or(5);
        let idempotent = self.idempotent.or(driver.idempotent);
        if idempotent == Some(true) && (acks != -1 || in_flight_max > 5) {
            return Err(usage(
                "an idempotent producer needs acks=all and at most 5 requests in flight (--acks, --max-in-flight)",
            ));
        }
        let distributor = workload.map(|w| w.key_distributor).unwrap_or_default();
        let keys = self.keys.unwrap_or(match distributor {
            KeyDistributor::NoKey => Keys::None,
            KeyDistributor::KeyRoundRobin => Keys::RoundRobin,
            KeyDistributor::RandomNano => Keys::Random,
        });
        let codec = self.codec.or(driver.codec).unwrap_or_default();
        Ok(ProducerPlan {
            count: self
                .producers
                .or_else(|| workload.map(|w| w.producers_per_topic * topics))
                .unwrap_or(1),
            load: self.load(workload)?,
            message_bytes,
            payload,
            keys,
            key_count: self.key_count.unwrap_or(10_000),
            batch_bytes: size(self.batch_size, driver.batch_bytes, 16_384),
            linger: self.linger.or(driver.linger).unwrap_or(Duration::from_millis(5)),
            level: self.level.unwrap_or_else(|| codec.level_default()),
            codec,
            acks,
            idempotent: idempotent.unwrap_or(acks == -1 && in_flight_max <= 5 && !self.pre_encoded),
            in_flight_max,
            request_bytes_max: size(self.max_request_size, driver.request_bytes_max, 1 << 20),
            buffer_bytes: size(self.buffer_memory, driver.buffer_bytes, 32 << 20),
            pre_encoded: self.pre_encoded,
        })
    }

    fn consumers(
        &self,
        workload: Option<&Workload>,
        driver: &Driver,
        topics: usize,
    ) -> Result<ConsumerPlan, Failure> {
        let size = |flag: &str, value: Option<u64>, of_file: Option<i32>, default: i32| match value {
            None => Ok(of_file.unwrap_or(default)),
            Some(bytes) => i32::try_from(bytes).map_err(|_| usage(format!("{flag} has to be below 2 GiB"))),
        };
        let wait = self
            .fetch_wait
            .map(|wait| i32::try_from(wait.as_millis()).unwrap_or(i32::MAX));
        Ok(ConsumerPlan {
            count: self
                .consumers
                .or_else(|| workload.map(|w| w.consumers_per_subscription * topics))
                .unwrap_or(1),
            subscriptions: self
                .subscriptions
                .or_else(|| workload.map(|w| w.subscriptions_per_topic))
                .unwrap_or(1),
            fetch_bytes_max: size(
                "--fetch-max-bytes",
                self.fetch_max_bytes,
                driver.fetch_bytes_max,
                50 << 20,
            )?,
            partition_bytes_max: size(
                "--partition-fetch-bytes",
                self.partition_fetch_bytes,
                driver.partition_bytes_max,
                1 << 20,
            )?,
            fetch_bytes_min: size(
                "--fetch-min-bytes",
                self.fetch_min_bytes,
                driver.fetch_bytes_min,
                1,
            )?,
            wait_ms: wait.or(driver.fetch_wait_ms).unwrap_or(500),
            isolation: driver.isolation.unwrap_or(0),
            check_crcs: self.check_crcs || driver.check_crcs.unwrap_or(false),
            from_earliest: self.from_beginning || driver.from_earliest.unwrap_or(false),
        })
    }

    fn backlog(&self, workload: Option<&Workload>) -> Result<Option<BacklogPlan>, Failure> {
        let gib = f64::from(1u32 << 30);
        let of_file = workload.map(|w| (w.consumer_backlog_gib.max(0.0) * gib) as u64);
        let drain_share = self
            .backlog_drain_ratio
            .or_else(|| workload.map(|w| w.backlog_drain_ratio))
            .unwrap_or(1.0);
        if !(0.0..=1.0).contains(&drain_share) {
            return Err(usage(format!(
                "--backlog-drain-ratio is {drain_share}; it has to be from 0 to 1"
            )));
        }
        let bytes = self.backlog.or(of_file).filter(|bytes| *bytes > 0);
        Ok(bytes.map(|bytes| BacklogPlan {
            bytes,
            drain_share,
            is_built_fast: self.backlog_fast,
        }))
    }
}

fn name(workload: Option<&Workload>, driver: &Driver) -> String {
    let parts = [workload.map(|w| w.name.clone()), driver.name.clone()];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        "penstock-bench".to_owned()
    } else {
        parts.join(", ")
    }
}

/// The content of a payload file. The benchmark's workloads name it from the benchmark's own folder, which holds theirs.
fn payload_file(file: &Path, workload: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let folders = workload
        .and_then(Path::parent)
        .into_iter()
        .flat_map(|folder| folder.ancestors().take(2));
    let places: Vec<PathBuf> = std::iter::once(file.to_path_buf())
        .chain(folders.map(|folder| folder.join(file)))
        .collect();
    let found = places.iter().find(|place| place.is_file()).unwrap_or(&places[0]);
    let value = std::fs::read(found).map_err(|error| {
        Failure::new(
            Status::Data,
            format!("{}: the payload file cannot be read ({error})", found.display()),
        )
    })?;
    if value.is_empty() {
        return Err(Failure::new(
            Status::Data,
            format!("{}: the payload file is empty", found.display()),
        ));
    }
    Ok(value)
}

/// What flags and files may not say together.
fn check(plan: &Plan) -> Result<(), Failure> {
    let (producers, consumers) = (&plan.producers, &plan.consumers);
    let connections = producers.count + plan.consumers();
    if producers.count == 0 {
        return Err(usage("a run needs at least one producer (--producers)"));
    }
    if connections > CONNECTIONS_MAX {
        return Err(usage(format!(
            "{connections} producers and consumers are more than {CONNECTIONS_MAX}, which one host can connect; --producers and --consumers are stronger than a workload's"
        )));
    }
    if plan.threads == 0 || plan.threads > THREADS_MAX {
        return Err(usage(format!(
            "--threads is {}; it has to be from 1 to {THREADS_MAX}",
            plan.threads
        )));
    }
    if plan.interval < Duration::from_millis(50) || plan.time < plan.interval {
        return Err(usage(
            "--interval has to be 50ms at least, and --time no shorter than it",
        ));
    }
    if consumers.count > 0 && producers.message_bytes < STAMP_BYTES {
        return Err(usage(format!(
            "messages of {} bytes cannot hold the {STAMP_BYTES} bytes of their time; make them larger (--message-size), or leave consumers out (--consumers 0)",
            producers.message_bytes
        )));
    }
    if plan.backlog.is_some() && consumers.count == 0 {
        return Err(usage("a backlog needs someone who drains it: --consumers is 0"));
    }
    if plan.backlog.is_some() && matches!(producers.load, Load::Search(_)) {
        return Err(usage(
            "a backlog is built at a known rate: give --rate as a number or max",
        ));
    }
    if producers.pre_encoded && !matches!(producers.keys, Keys::None | Keys::NoneRoundRobin) {
        return Err(usage(
            "--pre-encoded batches have no keys: leave out one of --pre-encoded and --keys",
        ));
    }
    if let Some(pid) = plan.pid {
        crate::resources::usage(pid).map_err(|error| {
            usage(format!(
                "--pid {pid}: {error}; it has to be a process of this host"
            ))
        })?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
