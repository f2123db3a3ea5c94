//! One process of ours and a client that speaks the protocol byte by byte, so that a test decides what is in flight.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::header::{RequestHeader, ResponseHeader};
use protocol::message::{Request, Response};
use protocol::{Reader, Str, Writer};

/// How long anything may take on a busy host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A command of ours without what the surroundings may set.
pub(crate) fn penstock(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.current_dir(dir).args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PENSTOCK_") {
            command.env_remove(name);
        }
    }
    command
}

/// Exit status, standard output, standard error of a command that ends by itself.
pub(crate) fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let child = penstock(dir, arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let (done, is_done) = channel();
    let watch = std::thread::spawn(move || {
        if is_done.recv_timeout(PATIENCE).is_err() {
            signal_pid(pid, Signal::SIGKILL);
        }
    });
    let output = child.wait_with_output().unwrap();
    let _ = done.send(());
    watch.join().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A broker that was started and is ready. Killed when dropped.
pub(crate) struct Broker {
    child: Child,
    stderr: PathBuf,
    pub(crate) ready_line: String,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// A broker that was started and may not be ready yet. Killed when dropped.
pub(crate) struct Starting {
    child: Option<Child>,
    lines: Receiver<String>,
    stderr: PathBuf,
}

/// The arguments of a broker on ports that the kernel chooses, unless `more` says otherwise.
fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec![
        "--override",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "--override",
        "penstock.admin.listener=127.0.0.1:0",
    ];
    for pair in more {
        arguments.extend(["--override", pair]);
    }
    arguments
}

impl Starting {
    pub(crate) fn new(dir: &Path, more: &[&str]) -> Self {
        Self::run(dir, penstock(dir, &arguments(more)))
    }

    /// The same with more arguments of other kinds.
    pub(crate) fn with_options(dir: &Path, more: &[&str], options: &[&str]) -> Self {
        let mut command = penstock(dir, options);
        command.args(arguments(more));
        Self::run(dir, command)
    }

    /// The same where no file can grow beyond `mib` MiB: a write beyond that fails.
    pub(crate) fn with_small_files(dir: &Path, more: &[&str], mib: u32) -> Self {
        let mut command = Command::new("sh");
        // Half a KiB is the unit of POSIX; the broker inherits that the signal for it is ignored.
        let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", mib * 2048);
        command
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_penstock")])
            .args(arguments(more))
            .current_dir(dir)
            .stdin(Stdio::null());
        Self::run(dir, command)
    }

    /// The same where the process may have so many file descriptors.
    pub(crate) fn with_descriptors(dir: &Path, more: &[&str], descriptors: u32) -> Self {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {descriptors}; exec \"$@\"");
        command
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_penstock")])
            .args(arguments(more))
            .current_dir(dir)
            .stdin(Stdio::null());
        Self::run(dir, command)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it is there until it is ready");
        signal_pid(child.id(), signal);
    }

    /// Waits for an end without a ready line: status, what was said on standard output, and how long it took.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>, Duration) {
        let began = Instant::now();
        let mut child = self.child.take().expect("it is there until it is ready");
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                panic!("the start does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let took = began.elapsed();
        (status, self.lines.iter().collect(), took)
    }

    fn run(dir: &Path, mut command: Command) -> Self {
        let stderr = dir.join("stderr");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::from(std::fs::File::create(&stderr).unwrap()))
            .spawn()
            .unwrap();
        Self {
            lines: first_line(child.stdout.take().unwrap()),
            child: Some(child),
            stderr,
        }
    }

    /// Waits until it is ready.
    pub(crate) fn ready(mut self) -> Broker {
        let Ok(ready_line) = self.lines.recv_timeout(PATIENCE) else {
            panic!("not ready: {}", std::fs::read_to_string(&self.stderr).unwrap());
        };
        let word_after = |name: &str| {
            let mut words = ready_line.split(' ');
            words.find(|w| *w == name);
            words.next().unwrap_or_default().to_owned()
        };
        let listener = word_after("listeners");
        Broker {
            address: listener.trim_start_matches("PLAINTEXT://").parse().unwrap(),
            admin: word_after("admin").parse().unwrap(),
            child: self.child.take().unwrap(),
            stderr: self.stderr.clone(),
            ready_line,
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Broker {
    /// Starts one on ports that the kernel chooses and waits until it is ready.
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Self {
        Starting::new(dir, more).ready()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_pid(self.child.id(), signal);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end and says how long that took.
    pub(crate) fn end(mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, began.elapsed());
            }
            assert!(began.elapsed() < PATIENCE, "the broker does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The lines of its log with all these parts: the log is written by a thread of its own, so it is waited for one.
    pub(crate) fn logged(&self, parts: &[&str]) -> Vec<String> {
        let began = Instant::now();
        loop {
            let log = std::fs::read_to_string(&self.stderr).unwrap();
            let found = log
                .lines()
                .filter(|line| parts.iter().all(|part| line.contains(part)));
            let found: Vec<String> = found.map(str::to_owned).collect();
            if !found.is_empty() {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "{parts:?} is not in {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Resident memory, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let mut words = status.split_whitespace().skip_while(|word| *word != "VmRSS:");
        let kib: u64 = words.nth(1).unwrap().parse().unwrap();
        kib * 1024
    }

    /// Status line and body of a GET on the admin address.
    pub(crate) fn get(&self, path: &str) -> (String, String) {
        get(self.admin, path).unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status line and body of a GET.
pub(crate) fn get(admin: SocketAddr, path: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok((
        head.lines().next().unwrap_or_default().to_owned(),
        body.to_owned(),
    ))
}

/// A client connection.
pub(crate) struct Client {
    stream: TcpStream,
    next: i32,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap()
    }

    /// The same to a broker that may not be there.
    pub(crate) fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, next: 0 })
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn send<R: Request>(&mut self, request: &R, version: i16) -> io::Result<()> {
        self.next += 1;
        let mut writer = Writer::framed(256);
        let header = RequestHeader {
            api_key: R::KEY,
            api_version: version,
            correlation_id: self.next,
            client_id: Some(Str::from("test")),
        };
        header.encode(&mut writer);
        request.encode(&mut writer, version).unwrap();
        for chunk in writer.finish().unwrap() {
            self.stream.write_all(&chunk)?;
        }
        Ok(())
    }

    /// The next answer; an error when the connection has ended.
    pub(crate) fn receive<R: Response>(&mut self, version: i16) -> io::Result<R> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut frame)?;
        let mut reader = Reader::new(Bytes::from(frame));
        ResponseHeader::decode(&mut reader, R::KEY, version).unwrap();
        Ok(R::decode(&mut reader, version).unwrap())
    }

    pub(crate) fn call<Q: Request, A: Response>(&mut self, request: &Q, version: i16) -> io::Result<A> {
        self.send(request, version)?;
        self.receive(version)
    }
}

/// The present, as records are stamped: what is stamped long ago may go by age before a test is over.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn signal_pid(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal);
}

fn first_line(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (tx, rx) = channel();
    std::thread::spawn(move || {
        // The rest is read as well, so that the process never waits for us.
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = tx.send(line);
        }
    });
    rx
}
