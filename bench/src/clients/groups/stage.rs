//! What a case works with: its topic, its members, and what they have told.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::Row;
use super::history::{History, MemberTold, Told};
use super::member::{Member, MemberOptions};
use super::topic::{Feed, GroupTopic, PARTITIONS};
use crate::error::{Result, failed};

/// Longest wait for one step of a case. It is a failure that takes so long: a session timeout of 6 s and four starts of a JVM on a busy
/// host fit.
pub(super) const STEP_LIMIT: Duration = Duration::from_secs(150);
/// What every member is told.
const HEARTBEAT_MS: u32 = 300;

/// One case of one row.
pub(super) struct Stage<'a> {
    pub(super) row: &'a Row,
    pub(super) script: &'a Path,
    pub(super) cache: &'a Path,
    pub(super) bootstrap: &'a str,
    pub(super) log: PathBuf,
    pub(super) topic: Option<GroupTopic>,
    pub(super) history: Arc<History>,
    pub(super) members: Vec<Member>,
}

impl Stage<'_> {
    /// The topic; not while a feed has it.
    pub(super) fn topic(&mut self) -> &mut GroupTopic {
        self.topic.as_mut().expect("no case uses its topic during a feed")
    }

    /// Records begin to come in.
    pub(super) fn feed(&mut self) -> Feed {
        self.topic.take().expect("one feed at a time").feed()
    }

    /// No more records come in.
    pub(super) fn stop(&mut self, feed: Feed) -> Result<()> {
        self.topic = Some(feed.stop()?);
        Ok(())
    }

    /// Starts a member, and returns its number.
    pub(super) fn member(&mut self, options: &MemberOptions) -> Result<usize> {
        let index = self.history.join();
        let member = Member::start(self.command(options), &self.log, &self.history, index)?;
        self.members.push(member);
        Ok(index)
    }

    /// The command line of a member.
    pub(super) fn command(&mut self, options: &MemberOptions) -> Command {
        let mut command = Command::new(self.script);
        command.arg("member").arg(self.cache).args(self.row.arguments);
        let (topic, group) = (self.topic_name(), self.group());
        let group = options.group.clone().unwrap_or(group);
        command.args([
            "--bootstrap",
            self.bootstrap,
            "--topic",
            &topic,
            "--group",
            &group,
        ]);
        command.args(["--assignor", options.assignor, "--reset", options.reset]);
        command.args(["--commit", if options.auto_commit { "auto" } else { "manual" }]);
        command.args([
            "--session-ms",
            &options.session_ms.to_string(),
            "--heartbeat-ms",
            &HEARTBEAT_MS.to_string(),
        ]);
        if let Some(count) = options.count {
            command.args(["--count", &count.to_string()]);
        }
        if let Some(instance) = options.instance {
            command.args(["--instance", instance]);
        }
        command
    }

    fn topic_name(&self) -> String {
        self.log_stem()
    }

    /// The case's group.
    pub(super) fn group(&self) -> String {
        format!("{}-group", self.log_stem())
    }

    fn log_stem(&self) -> String {
        let stem = self.log.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// Sends a member a command and waits until it says that it is done.
    pub(super) fn ask(&mut self, member: usize, line: &str) -> Result<()> {
        let name = line.split(' ').next().unwrap_or(line).to_owned();
        let done = |told: &Told| told.members[member].done.get(&name).copied().unwrap_or(0);
        let before = self.history.look(done);
        self.members[member].command(line);
        let bad = |told: &Told| {
            told.members[member]
                .failures
                .iter()
                .any(|(command, _)| *command == name)
        };
        self.history
            .wait(&format!("{line} of member {member}"), STEP_LIMIT, |told| {
                done(told) > before || bad(told)
            })?;
        if self.history.look(bad) {
            let failures = self.history.look(|told| told.members[member].failures.clone());
            return failed(format!("member {member}: {line}: {failures:?}"));
        }
        Ok(())
    }

    /// A member leaves its group and ends.
    pub(super) fn leave(&mut self, member: usize) -> Result<()> {
        self.members[member].command("leave");
        self.history.wait(
            &format!("the end of member {member} after leaving"),
            STEP_LIMIT,
            |told| told.members[member].ended,
        )
    }

    /// All leave, and what must hold at the end of every case is looked at.
    pub(super) fn finish(&mut self) -> Result<()> {
        let running = |told: &Told| -> Vec<usize> {
            let numbered = told.members.iter().enumerate();
            numbered
                .filter(|(_, member)| !member.ended)
                .map(|(index, _)| index)
                .collect()
        };
        let left = self.history.look(running);
        for &member in &left {
            self.members[member].command("leave");
        }
        self.history.wait("all members to leave", STEP_LIMIT, |told| {
            running(told).is_empty()
        })?;
        self.history.check_owners()?;
        let first = |told: &Told| {
            told.members
                .iter()
                .find_map(|member| member.failures.first().cloned())
        };
        match self.history.look(first) {
            Some((command, error)) => failed(format!("{command}: {error}")),
            None => Ok(()),
        }
    }

    /// Waits until a member has all partitions; one that does not tell has read from all of them since then.
    pub(super) fn wait_for_all(&self, member: usize, since_ms: f64) -> Result<()> {
        self.history.wait(
            &format!("member {member} to have all partitions"),
            STEP_LIMIT,
            |told| told.members[member].covers(since_ms).len() == PARTITIONS as usize,
        )
    }

    /// Waits until two members share the partitions.
    pub(super) fn wait_until_shared(&self, a: usize, b: usize, since_ms: f64) -> Result<()> {
        self.history.wait(
            &format!("members {a} and {b} to share the partitions"),
            STEP_LIMIT,
            |told| {
                let (one, other) = (&told.members[a], &told.members[b]);
                let (has, also) = (one.covers(since_ms), other.covers(since_ms));
                let all = has.union(&also).count() == PARTITIONS as usize;
                all && !has.is_empty() && !also.is_empty() && (!one.tells_owners || has.is_disjoint(&also))
            },
        )
    }

    /// Waits until the members have read every record that is in the topic.
    pub(super) fn wait_until_read(&mut self) -> Result<()> {
        let ends = self.topic().ends();
        self.history.wait(
            &format!("everything below {ends:?} to be read"),
            STEP_LIMIT,
            |told| told.has_read_all(&ends),
        )
    }

    /// What a member has told.
    pub(super) fn told(&self, member: usize) -> MemberTold {
        self.history.look(|told| told.members[member].clone())
    }

    /// Waits until a member has read so many records.
    pub(super) fn wait_for_records(&self, member: usize, count: usize) -> Result<()> {
        self.history.wait(
            &format!("{count} records read by member {member}"),
            STEP_LIMIT,
            |told| told.members[member].records.len() >= count,
        )
    }
}
